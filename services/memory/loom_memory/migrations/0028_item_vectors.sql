-- The vector of each profile section and of each procedure's situation, of the model that wrote it last. embedding_dim 0
-- is a vector that is still to come.
CREATE TABLE IF NOT EXISTS item_vectors {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    plane LowCardinality(String),
    item_id String,
    user_id String CODEC(ZSTD),
    agent String CODEC(ZSTD),
    embedding_model LowCardinality(String),
    embedding Array(Float32) CODEC(NONE),
    embedding_dim UInt16,
    text String CODEC(ZSTD),
    actor String CODEC(ZSTD),
    updated_at DateTime64(3, 'UTC'),
    tombstoned_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, plane, item_id)
SETTINGS index_granularity = 1024;
