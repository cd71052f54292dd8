-- Sign-in sessions of people. The cookie's secret is kept as a digest; rows go a month after the session's end.
CREATE TABLE IF NOT EXISTS sessions {on_cluster}
(
    sid String,
    secret_digest String,
    org LowCardinality(String),
    subject String,
    method LowCardinality(String),
    created_at DateTime64(3, 'UTC'),
    expires_at DateTime64(3, 'UTC'),
    ended_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY sid
TTL toDateTime(expires_at) + INTERVAL 30 DAY
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1;

-- Links that sign one person in once. The link's secret is kept as a digest; a used one stays until it has expired.
CREATE TABLE IF NOT EXISTS sign_in_links {on_cluster}
(
    digest String,
    org LowCardinality(String),
    subject String,
    created_at DateTime64(3, 'UTC'),
    expires_at DateTime64(3, 'UTC'),
    used_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY digest
TTL toDateTime(expires_at) + INTERVAL 1 DAY
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1;
