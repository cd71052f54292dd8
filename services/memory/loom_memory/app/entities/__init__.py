"""Who and what memories name."""
