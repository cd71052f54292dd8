"""Rules of the llm service: what a model client is, which one is served, what a failure means. No I/O."""
