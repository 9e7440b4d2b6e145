"""Records passed between stages (graph, block, batch, data set): validation, storage, splitting and random streams."""
