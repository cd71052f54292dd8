"""Loom's memory service: memories, search and context."""
