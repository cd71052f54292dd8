-- What happened to a memory without a new version of it: it was told again, or somebody judged it. Appended and counted
-- when it is read; a row counts for the life of the key that it was written in. No text of a memory stands here.
CREATE TABLE IF NOT EXISTS memory_signals {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    memory_key String CODEC(ZSTD),
    user_id String CODEC(ZSTD),
    session_id String CODEC(ZSTD),
    signal LowCardinality(String),
    actor String CODEC(ZSTD),
    source String CODEC(ZSTD),
    request_id String CODEC(ZSTD),
    cosine Float32,
    recorded_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD)
)
ENGINE = {mergetree}
ORDER BY (org, namespace, memory_key, user_id, session_id, recorded_at)
SETTINGS index_granularity = 1024;
