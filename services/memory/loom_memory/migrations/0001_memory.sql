-- The current row of every memory; superseded rows are merged away. A deleted memory keeps a row with tombstoned_at.
CREATE TABLE IF NOT EXISTS memory {on_cluster}
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
    pinned Bool,
    term_ids Array(UInt32) CODEC(ZSTD),
    dl UInt16
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, memory_key, user_id, session_id)
SETTINGS index_granularity = 1024;
