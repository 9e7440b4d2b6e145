"""Layers over blocks, and models of them: SAGE, GCN, GIN, GAT, dropout that is exact under splitting."""
