"""What a namespace tells its agents of itself, and what should be put right in it."""
