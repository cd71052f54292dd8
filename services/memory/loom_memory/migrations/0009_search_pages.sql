-- What a search found beyond its first page, as keys and scores in their order, for whoever asked and nobody else. A
-- handle is random and lives for minutes; nothing here is read once it has passed its time.
CREATE TABLE IF NOT EXISTS search_pages {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    handle String,
    caller String CODEC(ZSTD),
    place UInt32,
    hit_namespace LowCardinality(String),
    memory_key String CODEC(ZSTD),
    user_id String CODEC(ZSTD),
    session_id String CODEC(ZSTD),
    score Float64,
    similarity Nullable(Float64),
    is_low Bool,
    as_of Nullable(DateTime64(3, 'UTC')),
    made_at DateTime64(3, 'UTC'),
    expires_at DateTime64(3, 'UTC')
)
ENGINE = {mergetree}
ORDER BY (org, namespace, handle, place)
TTL toDateTime(expires_at) + INTERVAL 1 HOUR
SETTINGS index_granularity = 1024;
