-- What every service of one database shares; rows are marked by service.

CREATE TABLE IF NOT EXISTS schema_migrations {on_cluster} (
    service LowCardinality(String),
    version UInt32,
    name String,
    checksum String,
    applied_at DateTime64(3, 'UTC')
) ENGINE = {replacing:applied_at}
ORDER BY (service, version)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1;

-- Append-only: a claim is a row of its own, and so is its end.
CREATE TABLE IF NOT EXISTS claims {on_cluster} (
    service LowCardinality(String),
    name String,
    epoch UInt64,
    token String,
    done UInt8,
    hold_ms UInt32,
    at DateTime64(3, 'UTC') DEFAULT now64(3)
) ENGINE = {mergetree}
ORDER BY (service, name, epoch)
TTL toDateTime(at) + INTERVAL 1 DAY
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1;

-- One row per tenure; the highest fence is the current one. Rows stay, so that fences only rise.
CREATE TABLE IF NOT EXISTS leases {on_cluster} (
    service LowCardinality(String),
    name String,
    fence UInt64,
    holder String,
    expires_at DateTime64(3, 'UTC'),
    released UInt8,
    version UInt64
) ENGINE = {replacing:version}
ORDER BY (service, name, fence)
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1;

CREATE TABLE IF NOT EXISTS idempotency_keys {on_cluster} (
    service LowCardinality(String),
    org LowCardinality(String),
    subject String,
    op LowCardinality(String),
    key String,
    digest String,
    response String CODEC(ZSTD),
    created_at DateTime64(3, 'UTC'),
    version UInt64
) ENGINE = {replacing:version}
ORDER BY (service, org, subject, op, key)
TTL toDateTime(created_at) + INTERVAL 1 DAY
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1;
