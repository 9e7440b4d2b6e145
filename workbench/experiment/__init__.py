"""Experiments: figures as pairs of YAML and Python, their sweeps run, resumed, stored and checked."""
