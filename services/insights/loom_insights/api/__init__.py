"""Servicers of insights."""
