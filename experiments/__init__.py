"""Experiments: one folder per paper, and the performance benchmarks."""
