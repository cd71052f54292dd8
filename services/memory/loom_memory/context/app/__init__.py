"""Use cases of context."""
