-- What came of using a procedure, a row for each use.
CREATE TABLE IF NOT EXISTS procedure_outcomes {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    procedure_id String,
    outcome_id String,
    succeeded Bool,
    actor String CODEC(ZSTD),
    recorded_at DateTime64(3, 'UTC'),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, procedure_id, outcome_id)
SETTINGS index_granularity = 1024;
