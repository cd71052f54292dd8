-- What each memory names. A row stands for one version of a memory, also where that names nothing, so that none is read
-- twice.
CREATE TABLE IF NOT EXISTS entity_mentions {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    memory_key String CODEC(ZSTD),
    user_id String CODEC(ZSTD),
    session_id String CODEC(ZSTD),
    memory_version UInt64,
    entity_ids Array(String),
    tombstoned_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, memory_key, user_id, session_id)
SETTINGS index_granularity = 1024;
