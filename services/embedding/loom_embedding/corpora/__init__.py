"""Pairs of texts that thresholds are measured with: language, register and two texts a line, separated by tabs."""
