-- Whether calls to models may be made for an organisation; one without a row has them on. Identity streams what is off to
-- every service.
CREATE TABLE IF NOT EXISTS org_model_calls {on_cluster}
(
    org LowCardinality(String),
    enabled Bool,
    updated_at DateTime64(3, 'UTC'),
    updated_by String,
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY org
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1;
