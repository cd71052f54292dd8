-- The current version of every document: what its other rows have to name to be seen. A deleted document keeps a row with
-- tombstoned_at.
CREATE TABLE IF NOT EXISTS knowledge_documents {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    source_uri String CODEC(ZSTD),
    title String CODEC(ZSTD),
    kind LowCardinality(String),
    language LowCardinality(String),
    tags Array(String) CODEC(ZSTD),
    digest String CODEC(ZSTD),
    size_bytes UInt32,
    chars UInt32,
    pages UInt32,
    sections UInt32,
    chunks UInt32,
    derived_from Array(String) CODEC(ZSTD),
    actor String CODEC(ZSTD),
    revision UInt32,
    version UInt64,
    created_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    updated_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    tombstoned_at Nullable(DateTime64(3, 'UTC'))
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, source_uri)
SETTINGS index_granularity = 1024;
