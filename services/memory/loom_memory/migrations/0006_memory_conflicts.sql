-- Pairs of memories that cannot both hold, as a write found them; the newest version of a row is its state. No text of a
-- memory stands here.
CREATE TABLE IF NOT EXISTS memory_conflicts {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    conflict_id String CODEC(ZSTD),
    newer_key String CODEC(ZSTD),
    newer_user_id String CODEC(ZSTD),
    newer_session_id String CODEC(ZSTD),
    newer_version UInt64,
    older_key String CODEC(ZSTD),
    older_user_id String CODEC(ZSTD),
    older_session_id String CODEC(ZSTD),
    older_version UInt64,
    cosine Float32,
    ends_at DateTime64(3, 'UTC'),
    restore_to Nullable(DateTime64(3, 'UTC')),
    state LowCardinality(String),
    resolution LowCardinality(String),
    resolved_by String CODEC(ZSTD),
    note String CODEC(ZSTD),
    actor String CODEC(ZSTD),
    attempts UInt16,
    retry_at Nullable(DateTime64(3, 'UTC')),
    created_at DateTime64(3, 'UTC'),
    updated_at DateTime64(3, 'UTC'),
    tombstoned_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, conflict_id)
SETTINGS index_granularity = 1024;
