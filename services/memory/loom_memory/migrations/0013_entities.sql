-- People, places and things that the memories of a user name; rows without a user are those that all share. The newest
-- version of a row counts. `folded` holds its names as they are looked up.
CREATE TABLE IF NOT EXISTS entities {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    user_id String CODEC(ZSTD),
    entity_id String,
    name String CODEC(ZSTD),
    kind LowCardinality(String),
    aliases Array(String) CODEC(ZSTD),
    folded Array(String) CODEC(ZSTD),
    mention_count UInt32,
    first_seen_at DateTime64(3, 'UTC'),
    last_seen_at DateTime64(3, 'UTC'),
    tombstoned_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, user_id, entity_id)
SETTINGS index_granularity = 1024;
