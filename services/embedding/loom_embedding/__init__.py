"""Loom's embedding service: text to vectors."""
