"""The use cases of the plane."""
