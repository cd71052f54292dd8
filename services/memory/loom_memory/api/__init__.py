"""Servicers: messages in, messages out."""
