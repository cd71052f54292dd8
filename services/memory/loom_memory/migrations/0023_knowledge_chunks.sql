-- Passages of documents with their terms: what a search by words compares, and what it shows.
CREATE TABLE IF NOT EXISTS knowledge_chunks {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    source_uri String CODEC(ZSTD),
    version UInt64,
    chunk UInt32,
    section UInt32,
    start_offset UInt32,
    end_offset UInt32,
    breadcrumb String CODEC(ZSTD),
    text String CODEC(ZSTD),
    term_ids Array(UInt32) CODEC(ZSTD),
    dl UInt16
)
ENGINE = {mergetree}
ORDER BY (org, namespace, source_uri, version, chunk)
SETTINGS index_granularity = 1024;
