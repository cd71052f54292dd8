"""Rules of identity: pure functions over claims, tokens and namespaces."""
