-- Every version of the briefs of sessions; the highest revision of a session is the current one. evidence names the
-- memories that a brief was made of: key, user and session.
CREATE TABLE IF NOT EXISTS session_briefs {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    user_id String CODEC(ZSTD),
    session_id String CODEC(ZSTD),
    revision UInt32,
    agent String CODEC(ZSTD),
    text String CODEC(ZSTD),
    origin LowCardinality(String),
    model String CODEC(ZSTD),
    evidence Array(Tuple(String, String, String)) CODEC(ZSTD),
    turn_count UInt32,
    actor String CODEC(ZSTD),
    updated_at DateTime64(3, 'UTC'),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, user_id, session_id, revision)
SETTINGS index_granularity = 1024;
