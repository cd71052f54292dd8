"""Namespaces that are searched often, held in this process so that a search of them needs no statement."""
