"""Macrobatches: windows of mini-batches sampled with one relay per hop, their rows fetched once per group."""
