"""Servicer: messages in, messages out."""
