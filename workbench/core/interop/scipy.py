"""Exchange with scipy: graphs as square matrices, row = destination, column = source."""

from typing import Any

import torch

from workbench.core.block import Block
from workbench.core.graph import Graph


def to_scipy(graph: Graph) -> Any:
    """The graph as a `scipy.sparse.csr_array` with its weights (ones without; half precision as float32).

    Multi-edges stay separate entries until scipy sums them; edge ids and types are not carried.

    Args:
        graph: on any device.
    """
    from scipy.sparse import csr_array

    weight = torch.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight.detach().cpu()
    weight = weight.to(torch.promote_types(weight.dtype, torch.float32))
    arrays = weight.numpy(), graph.indices.cpu().numpy(), graph.indptr.cpu().numpy()
    return csr_array(arrays, shape=(graph.num_nodes, graph.num_nodes))


def from_scipy(matrix: Any, *, weighted: bool = True) -> Graph:
    """The graph of a square sparse matrix: entry (i, j) is an edge from j to i; the inverse of `to_scipy`.

    Args:
        matrix: any scipy sparse matrix or array.
        weighted: take the entries as `edge_weight`.

    Raises:
        ValueError: not square, an entry that is not finite, or offsets that fall or do not span the entries.
        TypeError: no sparse matrix; or entries that are no floats, with `weighted`.
        IndexError: a column out of range.
    """
    from scipy.sparse import issparse

    if not issparse(matrix):
        raise TypeError(f"matrix is a {type(matrix).__name__}; pass a sparse one: scipy.sparse.csr_array(matrix)")
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"the matrix has shape {matrix.shape}; a graph's has as many rows as columns")
    csr = matrix.tocsr()
    rows = Block(torch.as_tensor(csr.indptr).long(), torch.as_tensor(csr.indices), *csr.shape[::-1]).validate()
    weight = _weights(csr) if weighted else None
    return Graph.from_edges(rows.indices, rows.destinations, num_nodes=rows.num_dst, edge_weight=weight)


def _weights(csr: Any) -> torch.Tensor:
    if csr.data.dtype.kind != "f":
        raise TypeError(
            f"the matrix holds {csr.data.dtype}, which are no weights; pass matrix.astype('float32'), or weighted=False"
        )
    return torch.as_tensor(csr.data)
