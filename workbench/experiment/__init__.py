"""Experiments: a figure as a pair of YAML and Python, its sweep run point by point, resumed and kept."""
