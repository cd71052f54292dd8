"""Repositories: one per table, and all SQL."""
