-- How something is done in a situation, and what was learned in one. The newest version of a row counts.
CREATE TABLE IF NOT EXISTS procedures {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    procedure_id String,
    revision UInt32,
    kind LowCardinality(String),
    situation String CODEC(ZSTD),
    body String CODEC(ZSTD),
    agent String CODEC(ZSTD),
    user_id String CODEC(ZSTD),
    evidence Array(Tuple(String, String, String)) CODEC(ZSTD),
    term_ids Array(UInt32) CODEC(ZSTD),
    actor String CODEC(ZSTD),
    created_at DateTime64(3, 'UTC'),
    updated_at DateTime64(3, 'UTC'),
    tombstoned_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, procedure_id)
SETTINGS index_granularity = 1024;
