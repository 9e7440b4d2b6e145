"""Partitioning of a batch's seeds or a graph's nodes: pure functions that return one int64 part per seed or node."""
