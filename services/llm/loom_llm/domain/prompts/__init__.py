"""The llm service's own prompts, one module per family."""
