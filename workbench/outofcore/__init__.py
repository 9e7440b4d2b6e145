"""Training from disk: in which order partitions of nodes and buckets of edges pass through a buffer (MariusGNN)."""
