"""Answering questions, and briefing on topics, from what is remembered."""
