"""Prompts of memory, one module per family."""
