"""Conversions to and from SciPy: graphs as square sparse matrices, row = destination, column = source."""

from typing import Any

import torch

from workbench.core.block import Block
from workbench.core.graph import Graph


def to_scipy(graph: Graph) -> Any:
    """Convert a graph to a `scipy.sparse.csr_array` of its edge weights.

    Weights default to one; half precision becomes float32. Multi-edges are separate entries until SciPy sums them. Edge
    ids and types are dropped.

    Args:
        graph: the graph, on any device.
    """
    from scipy.sparse import csr_array

    weight = torch.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight.detach().cpu()
    weight = weight.to(torch.promote_types(weight.dtype, torch.float32))
    arrays = weight.numpy(), graph.indices.cpu().numpy(), graph.indptr.cpu().numpy()
    return csr_array(arrays, shape=(graph.num_nodes, graph.num_nodes))


def from_scipy(matrix: Any, *, weighted: bool = True) -> Graph:
    """Convert a square sparse matrix, whose entry (i, j) is an edge from j to i: the inverse of `to_scipy`.

    Args:
        matrix: SciPy sparse matrix or array.
        weighted: store the entries as `edge_weight`.

    Raises:
        ValueError: if the matrix is not square, an entry is not finite, or its structure is invalid.
        TypeError: if it is not a sparse matrix, or `weighted` is set and the entries are not floating point.
    """
    from scipy.sparse import issparse

    if not issparse(matrix):
        raise TypeError(f"matrix is a {type(matrix).__name__}; pass a sparse one: scipy.sparse.csr_array(matrix)")
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"the matrix has shape {matrix.shape}; it must be square")
    csr = matrix.tocsr()
    rows = Block(torch.as_tensor(csr.indptr).long(), torch.as_tensor(csr.indices), *csr.shape[::-1]).validate()
    weight = _weights(csr) if weighted else None
    return Graph.from_edges(rows.indices, rows.destinations, num_nodes=rows.num_dst, edge_weight=weight)


def _weights(csr: Any) -> torch.Tensor:
    if csr.data.dtype.kind != "f":
        raise TypeError(
            f"the matrix contains {csr.data.dtype}, but weights must be floating point; pass matrix.astype('float32'), "
            "or weighted=False"
        )
    return torch.as_tensor(csr.data)
