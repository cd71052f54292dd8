-- Every version of every memory, appended and never replaced. A row with tombstoned_at marks a deletion, or a version
-- that a later deletion took with it.
CREATE TABLE IF NOT EXISTS memory_versions {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    memory_key String CODEC(ZSTD),
    user_id String CODEC(ZSTD),
    session_id String CODEC(ZSTD),
    value String CODEC(ZSTD),
    kind LowCardinality(String),
    tags Array(String) CODEC(ZSTD),
    importance Float64,
    sensitivity LowCardinality(String),
    agent String CODEC(ZSTD),
    actor String CODEC(ZSTD),
    speaker String CODEC(ZSTD),
    source String CODEC(ZSTD),
    revision UInt32,
    version UInt64,
    created_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    updated_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    event_time Nullable(DateTime64(3, 'UTC')),
    valid_at Nullable(DateTime64(3, 'UTC')),
    invalid_at Nullable(DateTime64(3, 'UTC')),
    expires_at Nullable(DateTime64(3, 'UTC')),
    tombstoned_at Nullable(DateTime64(3, 'UTC')),
    attestation LowCardinality(String),
    pinned Bool
)
ENGINE = {mergetree}
ORDER BY (org, namespace, memory_key, user_id, session_id, version)
SETTINGS index_granularity = 1024;
