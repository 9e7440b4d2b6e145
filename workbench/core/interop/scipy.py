"""Exchange with scipy: graphs as square matrices, row = destination, column = source."""

from typing import Any

import torch

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
        ValueError: not square, or an entry that is not finite.
        TypeError: entries that are no floats, with `weighted`.
    """
    rows, columns = matrix.shape
    if rows != columns:
        raise ValueError(f"the matrix has shape {matrix.shape}; a graph's has as many rows as columns")
    csr = matrix.tocsr()
    lengths = torch.as_tensor(csr.indptr).to(torch.int64).diff()
    destinations = torch.repeat_interleave(torch.arange(rows), lengths)
    weight = torch.as_tensor(csr.data) if weighted else None
    return Graph.from_edges(csr.indices, destinations, num_nodes=rows, edge_weight=weight)
