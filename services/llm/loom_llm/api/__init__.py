"""Servicers: they translate messages and nothing else."""
