"""Erasing what must not be kept, from every table of every service, step by step."""
