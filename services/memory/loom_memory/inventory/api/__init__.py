"""Serves the counts."""
