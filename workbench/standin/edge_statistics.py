"""Edge statistics of any graph: reciprocity and homophily, and its undirected simple version."""

import torch
from torch import Tensor

from workbench.core.errors import check_vector
from workbench.core.graph import Graph
from workbench.kernels.csr import offsets
from workbench.kernels.jit import compiled
from workbench.kernels.symmetric_csr import symmetric_rows
from workbench.kernels.threads import parallel_edges


def reciprocity(graph: Graph) -> float | None:
    """Compute the share of edges whose reverse exists, not counting self loops.

    Args:
        graph: a graph on the CPU.

    Returns:
        The share; None without edges.
    """
    ordered = _sorted(graph)
    return _num_mutual(ordered) / ordered.num_edges if ordered.num_edges else None


def homophily(graph: Graph, y: Tensor) -> float | None:
    """Compute the edge homophily: the share of edges between labelled nodes whose ends have the same class.

    Args:
        graph: a graph on the CPU.
        y: int64 [num_nodes], -1 for unlabelled; or floating, if nodes have several labels.

    Returns:
        The share; None if nodes have several labels, or no edge joins labelled nodes.

    Raises:
        ValueError: the number of labels differs from the number of nodes.

    Source: Zhu et al. (NeurIPS 2020).
    """
    if y.is_floating_point():
        return None
    check_vector("y", y, graph.num_nodes, (torch.int64,))
    same, labelled = (torch.zeros(graph.num_nodes, dtype=torch.int64) for _ in range(2))
    p, i, labels, a, b = (t.numpy() for t in (graph.indptr, graph.indices, y, same, labelled))
    parallel_edges(lambda lo, hi: _count_same(p, i, labels, lo, hi, a, b), graph.indptr)
    return int(same.sum()) / int(labelled.sum()) if int(labelled.sum()) else None


def simple_undirected(graph: Graph) -> Graph:
    """Convert a graph to its undirected simple version.

    Args:
        graph: a graph on the CPU.

    Returns:
        Both directions of every edge, without self loops and duplicates, rows ascending; `graph` itself if it is that.
    """
    if _is_simple(graph) and _num_mutual(graph) == graph.num_edges:
        return graph
    rows = _rows_of(graph)
    proper = rows != graph.indices
    csr = symmetric_rows(rows[proper], graph.indices[proper], None, graph.num_nodes)
    return Graph(csr.indptr, csr.indices)


def _is_simple(graph: Graph) -> bool:
    """Check that there are no self loops and duplicates, and that rows are ascending."""
    bad = torch.zeros(graph.num_nodes, dtype=torch.bool)
    p, i, b = graph.indptr.numpy(), graph.indices.numpy(), bad.numpy()
    parallel_edges(lambda lo, hi: _mark_unsorted(p, i, lo, hi, b), graph.indptr)
    return not bool(bad.any())


def _num_mutual(graph: Graph) -> int:
    mutual = torch.zeros(graph.num_nodes, dtype=torch.int64)
    p, i, m = graph.indptr.numpy(), graph.indices.numpy(), mutual.numpy()
    parallel_edges(lambda lo, hi: _count_mutual(p, i, lo, hi, m), graph.indptr)
    return int(mutual.sum())


def _sorted(graph: Graph) -> Graph:
    """Sort the rows and drop self loops, but not duplicates."""
    if _is_simple(graph):
        return graph
    rows, columns = _rows_of(graph).long(), graph.indices.long()
    proper = rows != columns
    keys = torch.sort(rows[proper] * graph.num_nodes + columns[proper]).values
    rows = torch.div(keys, graph.num_nodes, rounding_mode="floor")
    counts = torch.bincount(rows, minlength=graph.num_nodes)
    return Graph(offsets(counts), (keys - rows * graph.num_nodes).to(graph.indices.dtype))


def _rows_of(graph: Graph) -> Tensor:
    return torch.arange(graph.num_nodes, dtype=graph.indices.dtype).repeat_interleave(graph.in_degrees())


@compiled
def lower_bound(values, lo, hi, target):
    """Return the first position in [lo, hi) whose value is at least `target` (binary search)."""
    while lo < hi:
        middle = (lo + hi) // 2
        if values[middle] < target:
            lo = middle + 1
        else:
            hi = middle
    return lo


@compiled
def _mark_unsorted(indptr, indices, lo, hi, bad):
    for row in range(lo, hi):
        for e in range(indptr[row], indptr[row + 1]):
            bad[row] |= indices[e] == row or (e > indptr[row] and indices[e - 1] >= indices[e])


@compiled
def _contains(values, lo, hi, target):
    position = lower_bound(values, lo, hi, target)
    return position < hi and values[position] == target


@compiled
def _count_mutual(indptr, indices, lo, hi, mutual):
    for v in range(lo, hi):
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            mutual[v] += u != v and _contains(indices, indptr[u], indptr[u + 1], v)


@compiled
def _count_same(indptr, indices, y, lo, hi, same, labelled):
    for v in range(lo, hi):
        if y[v] < 0:
            continue
        for e in range(indptr[v], indptr[v + 1]):
            labelled[v] += y[indices[e]] >= 0
            same[v] += y[indices[e]] == y[v]
