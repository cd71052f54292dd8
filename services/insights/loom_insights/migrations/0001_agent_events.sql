-- One row per call. A tenant's rows lie together and in time order, which is how they are read. Rows are kept for 400
-- days: a year, which is the longest that a summary may span, and a month to look at it. Whole months are dropped, which
-- costs no merge.
CREATE TABLE IF NOT EXISTS agent_events {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    occurred_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    request_id String CODEC(ZSTD),
    recorder LowCardinality(String),
    op LowCardinality(String),
    transport LowCardinality(String),
    subject String CODEC(ZSTD),
    consumer LowCardinality(String),
    run_id String CODEC(ZSTD),
    user_id String CODEC(ZSTD),
    status LowCardinality(String),
    refused Bool,
    latency_ms Float64,
    out_hits Nullable(Int32),
    found Nullable(Bool),
    args Map(LowCardinality(String), String) CODEC(ZSTD),
    out_sql_digest String CODEC(ZSTD),
    embedding_tokens UInt32,
    input_tokens UInt32,
    output_tokens UInt32,
    cached_tokens UInt32,
    llm_calls UInt32,
    upstream_cost_usd Float64,
    out_llm_cache_saved_usd Float64,
    model LowCardinality(String)
)
ENGINE = {mergetree}
PARTITION BY toYYYYMM(occurred_at)
ORDER BY (org, namespace, occurred_at, request_id)
TTL toDateTime(occurred_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1;
