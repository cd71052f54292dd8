-- How far a background worker has read a namespace: the version of a memory, or the day of a digest.
CREATE TABLE IF NOT EXISTS worker_cursors {on_cluster}
(
    worker LowCardinality(String),
    org LowCardinality(String),
    namespace LowCardinality(String),
    place UInt64,
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (worker, org, namespace);
