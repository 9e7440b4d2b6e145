"""Experiment tracking: records of grid points and runs, and the stores that keep them (MLflow or a JSON Lines file)."""
