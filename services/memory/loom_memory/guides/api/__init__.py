"""Translates messages."""
