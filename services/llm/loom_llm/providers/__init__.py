"""Where answers come from: one module per provider, each an `LLMClient`."""
