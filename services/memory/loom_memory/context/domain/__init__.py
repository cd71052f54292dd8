"""Rules of context."""
