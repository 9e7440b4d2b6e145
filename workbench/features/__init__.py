"""Feature stores: rows of features and labels, read by raw-graph id."""
