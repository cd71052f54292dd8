-- What a model thought of a sampled search: how many of the hits it was shown answer the question. Numbers alone.
CREATE TABLE IF NOT EXISTS retrieval_judgements {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    judged_at DateTime64(3, 'UTC'),
    request_id String CODEC(ZSTD),
    op LowCardinality(String),
    model LowCardinality(String),
    hits UInt16,
    relevant UInt16,
    first_relevant UInt16,
    answered Bool
)
ENGINE = {mergetree}
ORDER BY (org, namespace, judged_at, request_id)
TTL toDateTime(judged_at) + INTERVAL 90 DAY
SETTINGS index_granularity = 1024;
