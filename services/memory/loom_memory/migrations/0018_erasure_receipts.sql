-- Erasures and how far they are; the newest version of a row counts. Whom or what is erased stands here as a digest
-- only, so that a receipt does not keep what it says is gone. `namespace` is empty where it was the whole organisation.
CREATE TABLE IF NOT EXISTS erasure_receipts {on_cluster}
(
    org LowCardinality(String),
    erasure_id String,
    namespace LowCardinality(String),
    kind LowCardinality(String),
    subject_digest String,
    actor String CODEC(ZSTD),
    state LowCardinality(String),
    step UInt32,
    waiting_for String CODEC(ZSTD),
    services Array(LowCardinality(String)),
    tables Array(LowCardinality(String)),
    holds Array(Bool),
    remaining Array(UInt32),
    started_at DateTime64(3, 'UTC'),
    rewritten_at Nullable(DateTime64(3, 'UTC')),
    finished_at Nullable(DateTime64(3, 'UTC')),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, erasure_id)
SETTINGS index_granularity = 1024;
