"""Loom's assistant service."""
