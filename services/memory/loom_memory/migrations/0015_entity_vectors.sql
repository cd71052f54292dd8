-- The vector of each entity's name and aliases, of the model that wrote it last. embedding_dim 0 is a vector that is
-- still to come.
CREATE TABLE IF NOT EXISTS entity_vectors {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    user_id String CODEC(ZSTD),
    entity_id String,
    embedding_model LowCardinality(String),
    embedding Array(Float32) CODEC(NONE),
    embedding_dim UInt16,
    text String CODEC(ZSTD),
    actor String CODEC(ZSTD),
    tombstoned_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, user_id, entity_id)
SETTINGS index_granularity = 1024;
