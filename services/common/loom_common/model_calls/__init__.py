"""Whom a call to a model is for: the one gate before it, the headers on it, and what an inference gateway refuses."""
