-- Answers of models, so that the same prompt of the same organisation need not be paid twice. The key is a digest over
-- organisation, model and prompt; the prompt itself is not kept. The answer may quote memories: the rows name the keys
-- whose text the prompt carried, so that they go when those memories are erased. Rows are dropped after their time.
CREATE TABLE IF NOT EXISTS llm_response_cache {on_cluster}
(
    org LowCardinality(String),
    model LowCardinality(String),
    cache_key String,
    namespaces Array(LowCardinality(String)),
    window_keys Array(String) CODEC(ZSTD),
    tags Array(String) CODEC(ZSTD),
    answer String CODEC(ZSTD),
    provider LowCardinality(String),
    answered_by LowCardinality(String),
    stop_reason LowCardinality(String),
    input_tokens UInt32,
    output_tokens UInt32,
    cached_input_tokens UInt32,
    cache_write_tokens UInt32,
    created_at DateTime64(3, 'UTC'),
    expires_at DateTime64(3, 'UTC'),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, model, cache_key)
TTL toDateTime(expires_at)
SETTINGS index_granularity = 1024, merge_with_ttl_timeout = 900;
