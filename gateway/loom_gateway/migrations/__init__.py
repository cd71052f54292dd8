"""The migrations of the gateway's own tables."""
