-- The turns of conversations. Only those of a conversation's present life are shown.
CREATE TABLE IF NOT EXISTS conversation_turns {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    conversation_id String,
    turn_id String,
    turn_index UInt32,
    author String CODEC(ZSTD),
    role LowCardinality(String),
    text String CODEC(ZSTD),
    term_ids Array(UInt32) CODEC(ZSTD),
    at DateTime64(3, 'UTC'),
    user_id String CODEC(ZSTD),
    session_id String CODEC(ZSTD),
    agent String CODEC(ZSTD),
    actor String CODEC(ZSTD),
    created_at DateTime64(3, 'UTC'),
    life UInt64,
    tombstoned_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, conversation_id, turn_id)
SETTINGS index_granularity = 1024;
