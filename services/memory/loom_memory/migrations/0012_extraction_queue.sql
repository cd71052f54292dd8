-- Conversations that wait for their facts, and for a month what became of them. The newest version of a row counts. The
-- messages are in `payload` until the work is done. `running` is a lease that ends at `leased_until`; a held row is one
-- of these, so that any build takes it up once the hold is over.
CREATE TABLE IF NOT EXISTS extraction_queue {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    extraction_id String CODEC(ZSTD),
    user_id String CODEC(ZSTD),
    session_id String CODEC(ZSTD),
    agent String CODEC(ZSTD),
    enqueued_by String CODEC(ZSTD),
    capture LowCardinality(String),
    tags Array(String) CODEC(ZSTD),
    source String CODEC(ZSTD),
    payload String CODEC(ZSTD),
    state LowCardinality(String),
    held Bool,
    attempts UInt16,
    due_at DateTime64(3, 'UTC'),
    leased_until Nullable(DateTime64(3, 'UTC')),
    done_windows Array(UInt32),
    extracted UInt32,
    stored UInt32,
    unchanged UInt32,
    refused UInt32,
    stored_keys Array(String) CODEC(ZSTD),
    reason LowCardinality(String),
    message String CODEC(ZSTD),
    model LowCardinality(String),
    created_at DateTime64(3, 'UTC'),
    updated_at DateTime64(3, 'UTC'),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace, extraction_id)
SETTINGS index_granularity = 1024;
