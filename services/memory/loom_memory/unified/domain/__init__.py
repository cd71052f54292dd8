"""Rules of a search over everything."""
