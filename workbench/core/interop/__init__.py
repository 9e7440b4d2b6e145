"""Exchange with DGL, PyTorch Geometric and scipy: the only place that imports them, and only when asked."""

from workbench.core.interop.dgl import from_dgl, graph_from_dgl, graph_to_dgl, to_dgl
from workbench.core.interop.pyg import PygBatch, from_pyg, graph_from_pyg, graph_to_pyg, to_pyg
from workbench.core.interop.scipy import from_scipy, to_scipy

__all__ = [
    "PygBatch",
    "from_dgl",
    "from_pyg",
    "from_scipy",
    "graph_from_dgl",
    "graph_from_pyg",
    "graph_to_dgl",
    "graph_to_pyg",
    "to_dgl",
    "to_pyg",
    "to_scipy",
]
