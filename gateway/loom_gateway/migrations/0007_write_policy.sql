-- What a namespace lets be written to it, as JSON; empty for everything, with what is sensitive marked.
ALTER TABLE namespaces {on_cluster} ADD COLUMN IF NOT EXISTS write_policy String DEFAULT '' CODEC(ZSTD);
