-- What was lately erased from llm_response_cache, as digests of keys and tags: an answer that was asked for before and
-- comes back after must not be kept. Needed no longer than a call to a model takes.
CREATE TABLE IF NOT EXISTS llm_cache_erasures {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    mark String,
    erased_at DateTime64(3, 'UTC')
)
ENGINE = {mergetree}
ORDER BY (org, erased_at, namespace, mark)
TTL toDateTime(erased_at) + INTERVAL 1 DAY
SETTINGS index_granularity = 1024, merge_with_ttl_timeout = 900;
