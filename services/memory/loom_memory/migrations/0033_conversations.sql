-- Conversations. The newest version of a row counts; `life` numbers what was said since it was begun, or begun again.
CREATE TABLE IF NOT EXISTS conversations {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    conversation_id String,
    user_id String CODEC(ZSTD),
    session_id String CODEC(ZSTD),
    agent String CODEC(ZSTD),
    title String CODEC(ZSTD),
    titled_by LowCardinality(String),
    turn_count UInt32,
    actor String CODEC(ZSTD),
    created_at DateTime64(3, 'UTC'),
    updated_at DateTime64(3, 'UTC'),
    life UInt64,
    tombstoned_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, conversation_id)
SETTINGS index_granularity = 1024;
