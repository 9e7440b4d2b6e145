"""Samplers: from a graph and seeds to a `MiniBatch`."""
