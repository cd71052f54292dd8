"""Servicers of the assistant."""
