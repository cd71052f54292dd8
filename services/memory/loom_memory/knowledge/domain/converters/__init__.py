"""Converters: bytes of one kind in, text with its headings out. They import nothing of a running service."""
