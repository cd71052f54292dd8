"""A call's way through the gateway: who asks, which service answers, what is recorded."""
