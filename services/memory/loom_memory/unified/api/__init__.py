"""Serves `loom.memory.v1.SearchService`."""
