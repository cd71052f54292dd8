"""Conversations: what was said, by whom and when, found again by meaning and by words."""
