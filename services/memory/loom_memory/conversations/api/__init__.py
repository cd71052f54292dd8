"""The RPCs of the plane."""
