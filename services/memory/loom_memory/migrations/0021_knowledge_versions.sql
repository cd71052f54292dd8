-- What was known of every version of every document, without its text; appended, and removed with the document.
CREATE TABLE IF NOT EXISTS knowledge_versions {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    source_uri String CODEC(ZSTD),
    version UInt64,
    revision UInt32,
    title String CODEC(ZSTD),
    digest String CODEC(ZSTD),
    size_bytes UInt32,
    chars UInt32,
    sections UInt32,
    actor String CODEC(ZSTD),
    updated_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD)
)
ENGINE = {mergetree}
ORDER BY (org, namespace, source_uri, version)
SETTINGS index_granularity = 1024;
