"""GNN layers on blocks (SAGE, GCN, GIN, GAT), models of them, and dropout that is exact under splitting."""
