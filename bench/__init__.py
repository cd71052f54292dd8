"""Benchmarks that anyone can rerun. They use Loom's public API with its shipped defaults, and nothing else of it."""
