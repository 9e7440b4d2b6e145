"""Runs of experiments: the record of a grid point, and the stores that keep it (MLflow, or a file where it is not)."""
