-- What an erasure works on: what was asked for, in the row of part 0, and the memories that were found. Caches are erased
-- by the keys of memories whose own rows may be gone already. The rows are removed when the erasure is finished.
CREATE TABLE IF NOT EXISTS erasure_work {on_cluster}
(
    org LowCardinality(String),
    erasure_id String,
    part UInt8,
    asked String CODEC(ZSTD),
    namespace LowCardinality(String),
    memory_key String CODEC(ZSTD),
    user_id String CODEC(ZSTD),
    session_id String CODEC(ZSTD)
)
ENGINE = {mergetree}
ORDER BY (org, erasure_id, part, namespace, memory_key, user_id, session_id)
SETTINGS index_granularity = 1024;
