"""Repositories: the only place with SQL."""
