"""Tables of context."""
