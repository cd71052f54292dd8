-- Every version of the sections of profiles; the highest revision of a section is the current one. A version with
-- tombstoned_at is a removal. evidence names the memories that a section was taken from: key, user and session.
CREATE TABLE IF NOT EXISTS profile_sections {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    section_id String,
    revision UInt32,
    user_id String CODEC(ZSTD),
    agent String CODEC(ZSTD),
    label String CODEC(ZSTD),
    value String CODEC(ZSTD),
    origin LowCardinality(String),
    evidence Array(Tuple(String, String, String)) CODEC(ZSTD),
    term_ids Array(UInt32) CODEC(ZSTD),
    actor String CODEC(ZSTD),
    updated_at DateTime64(3, 'UTC'),
    tombstoned_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, section_id, revision)
SETTINGS index_granularity = 1024;
