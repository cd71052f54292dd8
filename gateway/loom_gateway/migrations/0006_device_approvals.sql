-- What people let programs on other machines do: one row for each code that a signed-in person typed. Rows go once the
-- code is of no use.
CREATE TABLE IF NOT EXISTS device_approvals {on_cluster}
(
    code_digest String,
    org LowCardinality(String),
    subject String,
    approved_at DateTime64(3, 'UTC'),
    expires_at DateTime64(3, 'UTC'),
    used_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY code_digest
TTL toDateTime(expires_at) + INTERVAL 1 DAY
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1;
