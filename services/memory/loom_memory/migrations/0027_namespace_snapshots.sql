-- What was computed of a namespace, once for each span of time; bucket is the second at which its span begins. Of two rows
-- of one span the one with the lowest version counts. Kept for a while, so that a process with a slow clock finds its own.
CREATE TABLE IF NOT EXISTS namespace_snapshots {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    kind LowCardinality(String),
    bucket UInt64,
    body String CODEC(ZSTD),
    users Array(String) CODEC(ZSTD),
    memory_keys Array(String) CODEC(ZSTD),
    computed_at DateTime64(3, 'UTC'),
    version UInt64
)
ENGINE = {mergetree}
ORDER BY (org, namespace, kind, bucket, version)
TTL toDateTime(computed_at) + INTERVAL 21 DAY
SETTINGS index_granularity = 1024;
