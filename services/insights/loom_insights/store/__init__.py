"""The tables of insights; the only place with SQL."""
