"""Conversions to and from DGL, PyTorch Geometric (PyG), SciPy and networkx, which are imported only when used.

No other package names DGL, PyG or networkx. Batches keep their node and edge data, and parts of a batch their rows.
"""

from workbench.interop.dgl import (
    batch_from_dgl,
    batch_to_dgl,
    blocks_from_dgl,
    blocks_to_dgl,
    graph_from_dgl,
    graph_to_dgl,
)
from workbench.interop.networkx import from_scipy, graph_from_networkx, graph_to_networkx, to_scipy
from workbench.interop.pyg import (
    PygBatch,
    batch_from_pyg,
    batch_to_pyg,
    blocks_from_pyg,
    blocks_to_pyg,
    count_hops,
    graph_from_pyg,
    graph_to_pyg,
)

__all__ = [
    "PygBatch",
    "blocks_from_dgl",
    "blocks_from_pyg",
    "blocks_to_dgl",
    "blocks_to_pyg",
    "count_hops",
    "from_scipy",
    "graph_from_dgl",
    "graph_from_networkx",
    "graph_from_pyg",
    "graph_to_dgl",
    "graph_to_networkx",
    "graph_to_pyg",
    "to_scipy",
]

CONVERSIONS = {
    "Graph.from_dgl": graph_from_dgl,
    "Graph.to_dgl": graph_to_dgl,
    "Graph.from_pyg": graph_from_pyg,
    "Graph.to_pyg": graph_to_pyg,
    "Graph.from_scipy": from_scipy,
    "Graph.to_scipy": to_scipy,
    "Graph.from_networkx": graph_from_networkx,
    "Graph.to_networkx": graph_to_networkx,
    "MiniBatch.from_dgl": batch_from_dgl,
    "MiniBatch.to_dgl": batch_to_dgl,
    "MiniBatch.from_pyg": batch_from_pyg,
    "MiniBatch.to_pyg": batch_to_pyg,
}
"""What the methods of records call: `workbench` registers it with `workbench.core.conversions`."""
