"""Which part a seed of a batch, or a node of a graph, belongs to: pure functions that return one int64 label each."""
