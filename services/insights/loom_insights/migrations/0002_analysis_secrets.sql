-- The key that scopes of analyses are signed with and the analyst's password, as one sealed value in one row; needed on a
-- ClickHouse server alone. A row whose `sealed` is empty was removed by a rotation that is not over.
CREATE TABLE IF NOT EXISTS analysis_secrets {on_cluster}
(
    name LowCardinality(String),
    sealed String CODEC(NONE),
    stored_at DateTime64(3, 'UTC'),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY name;
