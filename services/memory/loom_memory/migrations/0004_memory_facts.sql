-- What a write says and finds beside the text. `sensitivity_stated` is the writer's own word; `sensitivity` is that or
-- what the recognisers found, whichever is stronger, and `recogniser` the version of those that looked.
ALTER TABLE memory {on_cluster} ADD COLUMN IF NOT EXISTS sensitivity_stated LowCardinality(String) DEFAULT '';
ALTER TABLE memory {on_cluster} ADD COLUMN IF NOT EXISTS sensitivity_found Array(LowCardinality(String));
ALTER TABLE memory {on_cluster} ADD COLUMN IF NOT EXISTS recogniser LowCardinality(String) DEFAULT '';
ALTER TABLE memory {on_cluster} ADD COLUMN IF NOT EXISTS labels Array(String);
ALTER TABLE memory {on_cluster} ADD COLUMN IF NOT EXISTS derived_from Array(String) CODEC(ZSTD);
ALTER TABLE memory {on_cluster} ADD COLUMN IF NOT EXISTS request_id String CODEC(ZSTD);
