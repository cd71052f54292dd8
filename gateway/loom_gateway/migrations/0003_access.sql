-- Whether others than its owner are meant to write to a namespace; one without an owner always was.
ALTER TABLE namespaces {on_cluster} ADD COLUMN IF NOT EXISTS shared Bool DEFAULT owner = '';

-- When the oldest token was issued for which each of `parent_subjects` stands, in seconds since 1970.
ALTER TABLE tokens {on_cluster} ADD COLUMN IF NOT EXISTS parent_times Array(Float64);

-- Organisations that were made by name. Others exist by what is theirs alone.
CREATE TABLE IF NOT EXISTS orgs {on_cluster}
(
    name String,
    display_name String,
    created_at DateTime64(3, 'UTC'),
    created_by String,
    updated_at DateTime64(3, 'UTC'),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY name
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1;

-- Who may do what. A removed grant stays as a tombstone: it says that its subject is bound by its grants.
CREATE TABLE IF NOT EXISTS grants {on_cluster}
(
    org LowCardinality(String),
    subject String,
    namespace String,
    role LowCardinality(String),
    updated_at DateTime64(3, 'UTC'),
    updated_by String,
    tombstoned_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, subject, namespace)
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1;

-- Which tokens of other issuers stand for agents of an organisation. Holds public keys and no secret.
CREATE TABLE IF NOT EXISTS trusts {on_cluster}
(
    org LowCardinality(String),
    name String,
    issuer String,
    audience String,
    jwks_url String,
    jwks String,
    claim_names Array(String),
    claim_values Array(Array(String)),
    agent_claim String,
    role LowCardinality(String),
    token_ttl_s UInt32,
    by_operator Bool,
    updated_at DateTime64(3, 'UTC'),
    updated_by String,
    tombstoned_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, name)
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1;

-- People and programs that an organisation knows by more than their tokens.
CREATE TABLE IF NOT EXISTS accounts {on_cluster}
(
    org LowCardinality(String),
    subject String,
    display_name String,
    email String,
    disabled Bool,
    created_at DateTime64(3, 'UTC'),
    updated_at DateTime64(3, 'UTC'),
    updated_by String,
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, subject)
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1;
