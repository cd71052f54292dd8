-- Texts that are parked outside of a context, until they expire; the newest version of a key counts. kept_until is never
-- before that of an older row of the key, so that none of them outlives the row that replaced it.
CREATE TABLE IF NOT EXISTS context_blobs {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    blob_key String CODEC(ZSTD),
    content String CODEC(ZSTD(3)),
    digest String CODEC(ZSTD),
    summary String CODEC(ZSTD),
    user_id String CODEC(ZSTD),
    actor String CODEC(ZSTD),
    created_at DateTime64(3, 'UTC'),
    expires_at DateTime64(3, 'UTC'),
    kept_until DateTime64(3, 'UTC'),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, blob_key)
TTL toDateTime(kept_until) + INTERVAL 1 HOUR
SETTINGS index_granularity = 1024;
