"""The legs of a search over everything, side by side."""
