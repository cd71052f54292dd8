-- What sessions keep in mind, until it expires; the newest version of an item counts. kept_until is never before that of
-- an older row of the item, so that none of them outlives the row that replaced it.
CREATE TABLE IF NOT EXISTS working_memory {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    user_id String CODEC(ZSTD),
    session_id String CODEC(ZSTD),
    label String CODEC(ZSTD),
    value String CODEC(ZSTD),
    revision UInt32,
    actor String CODEC(ZSTD),
    updated_at DateTime64(3, 'UTC'),
    expires_at DateTime64(3, 'UTC'),
    kept_until DateTime64(3, 'UTC'),
    tombstoned_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, user_id, session_id, label)
TTL toDateTime(kept_until) + INTERVAL 1 HOUR
SETTINGS index_granularity = 1024;
