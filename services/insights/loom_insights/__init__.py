"""Loom's insights service: the ledger, usage and analysis."""
