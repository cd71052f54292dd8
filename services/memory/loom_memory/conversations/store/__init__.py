"""The tables of the plane."""
