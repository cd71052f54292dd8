-- Codes and refresh tokens of OAuth that were used, so that none is used twice; rows go once they could not be used anyway.
CREATE TABLE IF NOT EXISTS oauth_uses {on_cluster}
(
    org LowCardinality(String),
    use_id String,
    used_at DateTime64(3, 'UTC'),
    expires_at DateTime64(3, 'UTC')
)
ENGINE = {mergetree}
ORDER BY use_id
TTL toDateTime(expires_at) + INTERVAL 1 DAY
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1;
