"""Searching everything that a caller may read: memories, documents, profiles and conversations."""
