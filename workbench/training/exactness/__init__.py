"""Whether micro-batches of a model compute the same as the whole batch: tried on a small batch, and warned of."""
