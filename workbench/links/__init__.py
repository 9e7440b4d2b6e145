"""Link prediction: batches of node pairs with negatives, and knowledge graphs of triples."""
