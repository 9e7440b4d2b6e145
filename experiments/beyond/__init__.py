"""Beyond the papers: their ideas combined, on the same batches."""
