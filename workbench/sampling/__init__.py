"""Samplers, which draw a `MiniBatch` from a graph and seeds, and the loader that iterates over an epoch."""
