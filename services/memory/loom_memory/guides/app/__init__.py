"""Use cases of guides."""
