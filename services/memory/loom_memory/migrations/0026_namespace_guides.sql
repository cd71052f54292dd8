-- Every version of the guide of a namespace; the highest revision is the current one. An empty text is a removal.
CREATE TABLE IF NOT EXISTS namespace_guides {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    revision UInt32,
    text String CODEC(ZSTD),
    actor String CODEC(ZSTD),
    updated_at DateTime64(3, 'UTC'),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, revision)
SETTINGS index_granularity = 1024;
