"""Servicers of `loom.identity.v1`: they translate messages and nothing else."""
