"""Where vectors come from: one module per provider, each an `Embedder`."""
