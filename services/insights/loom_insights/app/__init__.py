"""Use cases of insights."""
