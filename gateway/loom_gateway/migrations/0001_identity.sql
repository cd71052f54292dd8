-- Keys that sign tokens. The private half is sealed under LOOM_JWT_SECRET; a retired key still verifies what it signed.
CREATE TABLE IF NOT EXISTS signing_keys {on_cluster}
(
    kid String,
    kind LowCardinality(String),
    sealed_private String,
    created_at DateTime64(3, 'UTC'),
    retired_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY kid
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1;

-- Namespaces of each organisation. The columns after `restricted` are read by services through the directory once
-- something sets them.
CREATE TABLE IF NOT EXISTS namespaces {on_cluster}
(
    org LowCardinality(String),
    name String,
    kind LowCardinality(String),
    owner String,
    restricted Bool,
    classification LowCardinality(String) DEFAULT '',
    traffic_class LowCardinality(String) DEFAULT '',
    rerank_endpoint String DEFAULT '',
    classifier_endpoint String DEFAULT '',
    llm_cache Nullable(Bool),
    daily_cost_cap_usd Nullable(Float64),
    created_at DateTime64(3, 'UTC'),
    created_by String,
    updated_at DateTime64(3, 'UTC'),
    tombstoned_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, name)
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1;

-- What each issued token says, never the token. Rows are written once; identifiers sort by the time they were made. Kept
-- for as long after a token's end as the ledger keeps the calls that it made.
CREATE TABLE IF NOT EXISTS tokens {on_cluster}
(
    org LowCardinality(String),
    token_id String,
    subject String,
    label String,
    namespaces Array(String),
    roles Array(LowCardinality(String)),
    org_admin Bool,
    read_scope LowCardinality(String),
    user_id String,
    session_id String,
    consumer LowCardinality(String),
    parents Array(String),
    parent_subjects Array(String),
    creator String,
    sid String,
    made_by String,
    created_at DateTime64(3, 'UTC'),
    expires_at DateTime64(3, 'UTC')
)
ENGINE = {mergetree}
ORDER BY (org, token_id)
TTL toDateTime(expires_at) + INTERVAL 400 DAY
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1;

-- Tokens, subjects and sessions that were ended before their time. Rows are written once and are of no use after
-- `expires_at`, when everything that they end has expired by itself; a day later they go, however clocks differ. Sorted
-- by time: readers ask for what is new.
CREATE TABLE IF NOT EXISTS revoked_tokens {on_cluster}
(
    kind LowCardinality(String),
    org LowCardinality(String),
    id String,
    revoked_at DateTime64(3, 'UTC'),
    revoked_by String,
    expires_at DateTime64(3, 'UTC'),
    recorded_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = {mergetree}
ORDER BY (recorded_at, kind, org, id)
TTL toDateTime(expires_at) + INTERVAL 1 DAY
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1;
