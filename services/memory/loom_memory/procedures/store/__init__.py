"""One repository per table; the only place of the plane with SQL."""
