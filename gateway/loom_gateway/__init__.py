"""Loom's gateway: HTTP and MCP in, gRPC out, identity."""
