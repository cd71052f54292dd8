-- The same of every version.
ALTER TABLE memory_versions {on_cluster} ADD COLUMN IF NOT EXISTS sensitivity_stated LowCardinality(String) DEFAULT '';
ALTER TABLE memory_versions {on_cluster} ADD COLUMN IF NOT EXISTS sensitivity_found Array(LowCardinality(String));
ALTER TABLE memory_versions {on_cluster} ADD COLUMN IF NOT EXISTS recogniser LowCardinality(String) DEFAULT '';
ALTER TABLE memory_versions {on_cluster} ADD COLUMN IF NOT EXISTS labels Array(String);
ALTER TABLE memory_versions {on_cluster} ADD COLUMN IF NOT EXISTS derived_from Array(String) CODEC(ZSTD);
ALTER TABLE memory_versions {on_cluster} ADD COLUMN IF NOT EXISTS request_id String CODEC(ZSTD);
