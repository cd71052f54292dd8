-- What the last pass of every background worker did; the newest version of a worker's row counts.
CREATE TABLE IF NOT EXISTS worker_passes {on_cluster}
(
    worker LowCardinality(String),
    holder String,
    started_at DateTime64(3, 'UTC'),
    finished_at Nullable(DateTime64(3, 'UTC')),
    outcome LowCardinality(String),
    counted Array(String),
    counts Array(UInt32),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY worker;
