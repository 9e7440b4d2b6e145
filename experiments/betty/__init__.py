"""Betty: Enabling Large-Scale GNN Training with Batch-Level Graph Partitioning (ASPLOS 2023)."""
