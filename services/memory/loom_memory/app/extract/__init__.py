"""Turning conversations into memories."""
