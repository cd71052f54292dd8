"""Background passes."""
