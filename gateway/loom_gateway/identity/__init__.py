"""Identity: who may call, on what, and until when. Tokens, namespaces, and the keys and revocations behind them."""
