"""GNN layers on blocks (SAGE, GCN, GIN, GAT), models of them, and dropout that is exact under splitting."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
