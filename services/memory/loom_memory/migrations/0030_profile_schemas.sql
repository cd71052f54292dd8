-- Every version of the schema of a namespace's profiles; the highest revision is the current one. fields is a JSON list;
-- an empty list is a removal.
CREATE TABLE IF NOT EXISTS profile_schemas {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    revision UInt32,
    fields String CODEC(ZSTD),
    closed Bool,
    actor String CODEC(ZSTD),
    updated_at DateTime64(3, 'UTC'),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, revision)
SETTINGS index_granularity = 1024;
