"""Use cases: completing a prompt."""
