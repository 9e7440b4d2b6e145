"""Statistics of any graph: degrees, clustering, reciprocity, homophily."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_vector
from workbench.core.graph import Graph
from workbench.core.randomness import permutation
from workbench.kernels.csr import offsets
from workbench.kernels.jit import compiled
from workbench.kernels.symmetric_csr import symmetric_rows
from workbench.kernels.threads import parallel_edges

QUANTILES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


@dataclass(frozen=True)
class Clustering:
    """A mean local clustering coefficient.

    Args:
        mean: mean over all nodes; a node with fewer than two neighbours has coefficient 0.
        standard_error: standard error of the mean; 0 if all nodes were counted.
        num_nodes: number of nodes in the sample.
    """

    mean: float
    standard_error: float
    num_nodes: int


def clustering(graph: Graph, *, num_nodes: int | None = None, seed: int = 0) -> Clustering:
    """Estimate the mean local clustering coefficient of a graph's undirected simple version.

    Args:
        graph: a graph on the CPU.
        num_nodes: size of the sample; None: all nodes if that is fast, else 2,000 to 20,000, fewer in dense graphs.
        seed: seed of the sample.

    Returns:
        The mean and its standard error.

    Raises:
        ValueError: `num_nodes` below 1.
    """
    if num_nodes is not None:
        check_at_least("num_nodes", num_nodes, 1)
    return mean_clustering(simple_undirected(graph), num_nodes, seed)


def degree_quantiles(degrees: Tensor, shares: Sequence[float] = QUANTILES) -> tuple[tuple[float, int], ...]:
    """Compute degree quantiles: the smallest degree that at least a given share of the nodes does not exceed.

    Args:
        degrees: int64 [any].
        shares: the shares, in (0, 1].

    Returns:
        Pairs (share, degree); none without nodes.

    >>> import torch
    >>> degree_quantiles(torch.tensor([3, 1, 1, 9]), [0.5, 0.75])
    ((0.5, 1), (0.75, 3))
    """
    ordered, count = degrees.sort().values, len(degrees)
    return tuple((q, int(ordered[max(0, math.ceil(q * count - 1e-9) - 1)])) for q in shares) if count else ()


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


def reciprocity(graph: Graph) -> float | None:
    """Compute the share of edges whose reverse exists, not counting self loops.

    Args:
        graph: a graph on the CPU.

    Returns:
        The share; None without edges.
    """
    ordered = _sorted(graph)
    return _num_mutual(ordered) / ordered.num_edges if ordered.num_edges else None


@dataclass(frozen=True)
class GraphStatistics:
    """Statistics of a graph; degrees and clustering are those of its undirected simple version.

    Args:
        num_nodes: number of nodes.
        num_edges: number of stored edges.
        mean_degree: mean number of neighbours.
        largest_degree: largest number of neighbours.
        degree_quantiles: pairs (share of nodes, degree): the smallest degree that this share does not exceed.
        clustering: mean local clustering coefficient.
        reciprocity: share of edges whose reverse exists, not counting self loops; None without edges.
        homophily: share of edges between labelled nodes whose ends have the same class; None if it is undefined.
    """

    num_nodes: int
    num_edges: int
    mean_degree: float
    largest_degree: int
    degree_quantiles: tuple[tuple[float, int], ...]
    clustering: Clustering
    reciprocity: float | None
    homophily: float | None


def graph_statistics(graph: Graph, y: Tensor | None = None, *, seed: int = 0) -> GraphStatistics:
    """Measure a graph.

    Args:
        graph: a graph on the CPU.
        y: int64 [num_nodes], classes, -1 for unlabelled; or floating, if nodes have several labels; None: no labels.
        seed: seed of the sample of nodes for the clustering of large graphs.

    Returns:
        The statistics.
    """
    simple = simple_undirected(graph)
    degrees = simple.in_degrees()
    return GraphStatistics(
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges,
        mean_degree=simple.num_edges / max(1, graph.num_nodes),
        largest_degree=int(degrees.max()) if graph.num_nodes else 0,
        degree_quantiles=degree_quantiles(degrees),
        clustering=mean_clustering(simple, None, seed),
        reciprocity=(1.0 if simple.num_edges else None) if simple is graph else reciprocity(graph),
        homophily=None if y is None else homophily(graph, y),
    )


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


_MAX_MERGE_RATIO = 16  # of two lists' lengths up to which a merge beats binary searches

# Operations (sum of squared degrees) up to which all nodes are counted, and bounds of a sample's size.
_EXACT_COST, _MIN_SAMPLE, _MAX_SAMPLE = 2_000_000_000, 2_000, 20_000


def mean_clustering(simple: Graph, num_nodes: int | None, seed: int) -> Clustering:
    """Do as `clustering` does, for a graph that is undirected and simple already.

    Args:
        simple: a result of `simple_undirected`.
        num_nodes: size of the sample; None: chosen by the cost.
        seed: seed of the sample.

    Returns:
        The mean and its standard error.
    """
    population = simple.num_nodes
    if not population:
        return Clustering(0.0, 0.0, 0)
    sample = num_nodes or _sample_size(simple)
    if sample >= population:
        return Clustering(float(local_clustering(simple, torch.arange(population)).mean()), 0.0, population)
    values = local_clustering(simple, permutation(seed, population)[:sample].sort().values)
    deviation = float(values.std()) if sample > 1 else math.nan
    return Clustering(float(values.mean()), deviation * math.sqrt((1 - sample / population) / sample), sample)


def _sample_size(simple: Graph) -> int:
    cost = float((simple.in_degrees().double() ** 2).sum())
    if cost <= _EXACT_COST:
        return simple.num_nodes
    return min(max(int(_EXACT_COST / (cost / simple.num_nodes)), _MIN_SAMPLE), _MAX_SAMPLE)


def local_clustering(graph: Graph, nodes: Tensor) -> Tensor:
    """Compute local clustering coefficients: the share of the pairs of a node's neighbours that are joined.

    Args:
        graph: a result of `simple_undirected`.
        nodes: int64 [n], ids.

    Returns:
        float64 [n]; 0 for nodes with fewer than two neighbours.
    """
    out = torch.empty(len(nodes), dtype=torch.float64)
    p, i, ids, o = graph.indptr.numpy(), graph.indices.numpy(), nodes.numpy(), out.numpy()
    degrees = graph.in_degrees()[nodes]
    parallel_edges(lambda lo, hi: _coefficients(p, i, ids, lo, hi, o), offsets(degrees * degrees), 16)
    return out


@compiled
def _coefficients(indptr, indices, nodes, lo, hi, out):
    for i in range(lo, hi):
        v = nodes[i]
        degree = indptr[v + 1] - indptr[v]
        closed = 0
        for e in range(indptr[v], indptr[v + 1]):
            closed += _count_common(indptr, indices, v, indices[e])
        out[i] = closed / (degree * (degree - 1)) if degree > 1 else 0.0


@compiled
def _count_common(indptr, indices, v, u):
    """Count the common neighbours of v and u, by merging their ascending rows or searching the longer one."""
    a, a_end, b, b_end = indptr[v], indptr[v + 1], indptr[u], indptr[u + 1]
    if b_end - b < a_end - a:
        a, a_end, b, b_end = b, b_end, a, a_end
    count = 0
    search = b_end - b > _MAX_MERGE_RATIO * (a_end - a)
    while a < a_end and b < b_end:
        if search:
            b = lower_bound(indices, b, b_end, indices[a])
            count += b < b_end and indices[b] == indices[a]
            a += 1
        else:
            x, y = indices[a], indices[b]
            count += x == y
            a += x <= y
            b += y <= x
    return count
