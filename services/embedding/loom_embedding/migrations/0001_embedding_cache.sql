-- Vectors of texts that were embedded lately, so that another replica need not ask the provider for them. The key is a
-- digest over organisation, model and text; the text itself is not kept. Rows are dropped after their time.
CREATE TABLE IF NOT EXISTS embedding_cache {on_cluster}
(
    org LowCardinality(String),
    model LowCardinality(String),
    cache_key String,
    dim UInt16,
    vector Array(Float32) CODEC(ZSTD),
    expires_at DateTime64(3, 'UTC'),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, model, cache_key)
TTL toDateTime(expires_at)
SETTINGS index_granularity = 1024, merge_with_ttl_timeout = 900;
