-- One row in the scope that no caller can have, by which a check sees that the policies take the key.
CREATE TABLE IF NOT EXISTS analysis_canary {on_cluster}
(
    org LowCardinality(String),
    namespace LowCardinality(String),
    version UInt64
)
ENGINE = {replacing:version}
ORDER BY (org, namespace);
INSERT INTO analysis_canary (org, namespace, version) VALUES ('', '', 1);
