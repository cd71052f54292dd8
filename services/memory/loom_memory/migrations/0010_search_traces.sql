-- Searches as they were asked, so that they can be asked again another way. `asked` is the request and `found` the keys
-- that answered it; no row is written for a restricted namespace, nor where the deployment keeps none.
CREATE TABLE IF NOT EXISTS search_traces {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    asked_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    request_id String CODEC(ZSTD),
    op LowCardinality(String),
    subject String CODEC(ZSTD),
    user_id String CODEC(ZSTD),
    session_id String CODEC(ZSTD),
    query String CODEC(ZSTD),
    request String CODEC(ZSTD),
    found Array(Tuple(String, String, String)) CODEC(ZSTD),
    embedding_model LowCardinality(String),
    expires_at DateTime64(3, 'UTC')
)
ENGINE = {mergetree}
ORDER BY (org, namespace, asked_at, request_id)
TTL toDateTime(expires_at)
SETTINGS index_granularity = 1024;
