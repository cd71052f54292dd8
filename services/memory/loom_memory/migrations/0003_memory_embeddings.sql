-- Vectors of memories, one row per chunk and version. Not a replacing engine: it would let the vectors of an unfinished
-- write merge away those of the version that is still shown. Reads keep the version that `memory` holds; the sweep
-- removes the others. embedding_dim 0 is a stub, whose vector is still to come.
CREATE TABLE IF NOT EXISTS memory_embeddings {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    embedding_model LowCardinality(String),
    memory_key String CODEC(ZSTD),
    user_id String CODEC(ZSTD),
    session_id String CODEC(ZSTD),
    chunk UInt16,
    version UInt64,
    start_offset UInt32,
    end_offset UInt32,
    embedding Array(Float32) CODEC(NONE),
    embedding_dim UInt16,
    status LowCardinality(String),
    invalid_at Nullable(DateTime64(3, 'UTC')),
    attestation LowCardinality(String),
    embed_retry_at Nullable(DateTime64(3, 'UTC'))
)
ENGINE = {mergetree}
ORDER BY (org, namespace, embedding_model, memory_key, user_id, session_id, chunk)
SETTINGS index_granularity = 1024;
