"""The rules of the plane."""
