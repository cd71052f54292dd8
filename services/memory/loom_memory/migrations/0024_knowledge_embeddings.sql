-- Vectors of passages. A passage that is longer than the model's window has several, by `part`; those of several models
-- lie side by side while they are made anew.
CREATE TABLE IF NOT EXISTS knowledge_embeddings {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    embedding_model LowCardinality(String),
    source_uri String CODEC(ZSTD),
    version UInt64,
    chunk UInt32,
    part UInt16,
    embedding Array(Float32) CODEC(NONE),
    embedding_dim UInt16
)
ENGINE = {mergetree}
ORDER BY (org, namespace, embedding_model, source_uri, version, chunk, part)
SETTINGS index_granularity = 1024;
