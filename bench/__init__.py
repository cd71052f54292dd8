"""Benchmarks that anyone can rerun. But for `gates`, they use Loom's public API with its shipped defaults."""
