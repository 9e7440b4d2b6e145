"""Experiment tracking: records of grid points and runs, and the stores that keep them (MLflow or a JSON Lines file).

One module names MLflow. Rows are a run's artifact, metrics their mirror; runs that a kill left open are closed.
"""
