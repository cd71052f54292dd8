-- Runs of agents as they were recorded last, until 90 days later. run_key is a digest of user, session and run.
CREATE TABLE IF NOT EXISTS runs {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    run_key String,
    run_id String CODEC(ZSTD),
    user_id String CODEC(ZSTD),
    session_id String CODEC(ZSTD),
    agent String CODEC(ZSTD),
    status LowCardinality(String),
    summary String CODEC(ZSTD),
    started_at DateTime64(3, 'UTC'),
    ended_at Nullable(DateTime64(3, 'UTC')),
    actor String CODEC(ZSTD),
    updated_at DateTime64(3, 'UTC'),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, run_key)
TTL toDateTime(updated_at) + INTERVAL 90 DAY
SETTINGS index_granularity = 1024;
