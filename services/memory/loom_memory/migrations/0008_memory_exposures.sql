-- Which version of a memory was shown to whom, by which operation, at which place. Keys and numbers, never a text. Kept
-- for 90 days: as long as anybody asks what an answer rested on, and as what is recalled often is counted over.
CREATE TABLE IF NOT EXISTS memory_exposures {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    memory_key String CODEC(ZSTD),
    user_id String CODEC(ZSTD),
    session_id String CODEC(ZSTD),
    revision UInt32,
    version UInt64,
    shown_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    op LowCardinality(String),
    request_id String CODEC(ZSTD),
    run_id String CODEC(ZSTD),
    subject String CODEC(ZSTD),
    consumer LowCardinality(String),
    shown_rank UInt16,
    score Float32,
    INDEX by_run run_id TYPE bloom_filter(0.01) GRANULARITY 4
)
ENGINE = {mergetree}
ORDER BY (org, namespace, memory_key, user_id, session_id, shown_at)
TTL toDateTime(shown_at) + INTERVAL 90 DAY
SETTINGS index_granularity = 1024;
