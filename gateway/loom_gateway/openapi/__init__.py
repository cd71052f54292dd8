"""OpenAPI out: the contract as HTTP callers' tools read it."""
