"""Loom's llm service: prompts to text."""
