-- The text of documents, by section; the sections of one version are its whole text, in order. Not a replacing engine:
-- rows of an unfinished write must not take the place of the version that is still shown.
CREATE TABLE IF NOT EXISTS knowledge_sections {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    source_uri String CODEC(ZSTD),
    version UInt64,
    ordinal UInt32,
    anchor String CODEC(ZSTD),
    heading String CODEC(ZSTD),
    heading_path Array(String) CODEC(ZSTD),
    level UInt8,
    start_offset UInt32,
    end_offset UInt32,
    body_offset UInt32,
    noise LowCardinality(String),
    text String CODEC(ZSTD)
)
ENGINE = {mergetree}
ORDER BY (org, namespace, source_uri, version, ordinal)
SETTINGS index_granularity = 256;
