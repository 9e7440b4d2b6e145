"""Figures of any graph: degrees, clustering, reciprocity, homophily."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_vector
from workbench.core.graph import Graph
from workbench.core.randomness import permutation
from workbench.kernels.csr import offsets, symmetric_rows
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_edges

QUANTILES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
# Lists up to this many times as long are walked through, longer ones searched.
_WALK = 16
# Looking at a node costs about the square of its degree; at least and at most so many are sampled.
_EXACT_COST, _FEWEST, _MOST = 2_000_000_000, 2_000, 20_000


@dataclass(frozen=True)
class Clustering:
    """Mean local clustering coefficient.

    Args:
        mean: over all nodes; a node with fewer than two neighbours has coefficient 0.
        standard_error: of the mean; 0 where every node was looked at.
        num_nodes: nodes looked at.
    """

    mean: float
    standard_error: float
    num_nodes: int


@dataclass(frozen=True)
class GraphFigures:
    """What `graph_figures` finds; degrees and clustering are those of the undirected simple graph.

    Args:
        num_nodes: nodes.
        num_edges: stored edges.
        mean_degree: neighbours of a node.
        largest_degree: neighbours.
        degree_quantiles: pairs (share of nodes, degree): the smallest degree that so many nodes do not exceed.
        clustering: mean local clustering coefficient.
        reciprocity: share of edges, loops apart, whose reverse exists; None without edges.
        homophily: share of edges between labelled nodes that join nodes of one class; None where that has no meaning.
    """

    num_nodes: int
    num_edges: int
    mean_degree: float
    largest_degree: int
    degree_quantiles: tuple[tuple[float, int], ...]
    clustering: Clustering
    reciprocity: float | None
    homophily: float | None


@compiled
def _ascending(indptr, indices, lo, hi, bad):
    for row in range(lo, hi):
        for e in range(indptr[row], indptr[row + 1]):
            bad[row] |= indices[e] == row or (e > indptr[row] and indices[e - 1] >= indices[e])


@compiled
def _find(values, lo, hi, wanted):
    """First position in [lo, hi) whose value is at least `wanted`."""
    while lo < hi:
        middle = (lo + hi) // 2
        if values[middle] < wanted:
            lo = middle + 1
        else:
            hi = middle
    return lo


@compiled
def _holds(values, lo, hi, wanted):
    at = _find(values, lo, hi, wanted)
    return at < hi and values[at] == wanted


@compiled
def _count_mutual(indptr, indices, lo, hi, mutual):
    for v in range(lo, hi):
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            mutual[v] += u != v and _holds(indices, indptr[u], indptr[u + 1], v)


@compiled
def _common(indptr, indices, v, u):
    """Neighbours that v and u share; rows ascend."""
    a, a_end, b, b_end = indptr[v], indptr[v + 1], indptr[u], indptr[u + 1]
    if b_end - b < a_end - a:
        a, a_end, b, b_end = b, b_end, a, a_end
    count = 0
    searched = b_end - b > _WALK * (a_end - a)
    while a < a_end and b < b_end:
        if searched:
            b = _find(indices, b, b_end, indices[a])
            count += b < b_end and indices[b] == indices[a]
            a += 1
        else:
            x, y = indices[a], indices[b]
            count += x == y
            a += x <= y
            b += y <= x
    return count


@compiled
def _coefficients(indptr, indices, nodes, lo, hi, out):
    for i in range(lo, hi):
        v = nodes[i]
        degree = indptr[v + 1] - indptr[v]
        closed = 0
        for e in range(indptr[v], indptr[v + 1]):
            closed += _common(indptr, indices, v, indices[e])
        out[i] = closed / (degree * (degree - 1)) if degree > 1 else 0.0


@compiled
def _count_alike(indptr, indices, y, lo, hi, alike, labelled):
    for v in range(lo, hi):
        if y[v] < 0:
            continue
        for e in range(indptr[v], indptr[v + 1]):
            labelled[v] += y[indices[e]] >= 0
            alike[v] += y[indices[e]] == y[v]


def _is_simple(graph: Graph) -> bool:
    """No loops, no repeats, rows ascending."""
    bad = torch.zeros(graph.num_nodes, dtype=torch.bool)
    p, i, b = graph.indptr.numpy(), graph.indices.numpy(), bad.numpy()
    parallel_edges(lambda lo, hi: _ascending(p, i, lo, hi, b), graph.indptr)
    return not bool(bad.any())


def _rows_of(graph: Graph) -> Tensor:
    return torch.arange(graph.num_nodes, dtype=graph.indices.dtype).repeat_interleave(graph.in_degrees())


def _num_mutual(graph: Graph) -> int:
    mutual = torch.zeros(graph.num_nodes, dtype=torch.int64)
    p, i, m = graph.indptr.numpy(), graph.indices.numpy(), mutual.numpy()
    parallel_edges(lambda lo, hi: _count_mutual(p, i, lo, hi, m), graph.indptr)
    return int(mutual.sum())


def _sorted(graph: Graph) -> Graph:
    """The graph with ascending rows, loops left out; edges that repeat stay."""
    if _is_simple(graph):
        return graph
    rows, columns = _rows_of(graph).long(), graph.indices.long()
    proper = rows != columns
    keys = torch.sort(rows[proper] * graph.num_nodes + columns[proper]).values
    rows = torch.div(keys, graph.num_nodes, rounding_mode="floor")
    counts = torch.bincount(rows, minlength=graph.num_nodes)
    return Graph(offsets(counts), (keys - rows * graph.num_nodes).to(graph.indices.dtype))


def reciprocity(graph: Graph) -> float | None:
    """Share of edges, loops apart, whose reverse exists; None without edges.

    Args:
        graph: on the CPU.
    """
    ordered = _sorted(graph)
    return _num_mutual(ordered) / ordered.num_edges if ordered.num_edges else None


def simple_undirected(graph: Graph) -> Graph:
    """Both directions of every edge, each once, without loops, rows ascending; the graph itself where it is so already.

    Args:
        graph: on the CPU.
    """
    if _is_simple(graph) and _num_mutual(graph) == graph.num_edges:
        return graph
    rows = _rows_of(graph)
    proper = rows != graph.indices
    csr = symmetric_rows(rows[proper], graph.indices[proper], None, graph.num_nodes)
    return Graph(csr.indptr, csr.indices)


def local_clustering(graph: Graph, nodes: Tensor) -> Tensor:
    """float64 [nodes]: share of the pairs of a node's neighbours that are joined (Watts, Strogatz 1998), else 0.

    Args:
        graph: as `simple_undirected` returns it.
        nodes: int64 ids.
    """
    out = torch.empty(len(nodes), dtype=torch.float64)
    p, i, ids, o = graph.indptr.numpy(), graph.indices.numpy(), nodes.numpy(), out.numpy()
    degrees = graph.in_degrees()[nodes]
    parallel_edges(lambda lo, hi: _coefficients(p, i, ids, lo, hi, o), offsets(degrees * degrees), 16)
    return out


def clustering(graph: Graph, *, num_nodes: int | None = None, seed: int = 0) -> Clustering:
    """Mean local clustering coefficient, exact or from a sample of nodes.

    Args:
        graph: on the CPU; made undirected, loops and repeats dropped.
        num_nodes: nodes to look at; None: all where that is quick, else 2,000 to 20,000, fewer in dense graphs.
        seed: of the sample.

    Raises:
        ValueError: `num_nodes` below 1.
    """
    if num_nodes is not None:
        check_at_least("num_nodes", num_nodes, 1)
    return _clustering(simple_undirected(graph), num_nodes, seed)


def _enough_nodes(simple: Graph) -> int:
    cost = float((simple.in_degrees().double() ** 2).sum())
    if cost <= _EXACT_COST:
        return simple.num_nodes
    return min(max(int(_EXACT_COST / (cost / simple.num_nodes)), _FEWEST), _MOST)


def _clustering(simple: Graph, num_nodes: int | None, seed: int) -> Clustering:
    population = simple.num_nodes
    if not population:
        return Clustering(0.0, 0.0, 0)
    wanted = num_nodes or _enough_nodes(simple)
    if wanted >= population:
        return Clustering(float(local_clustering(simple, torch.arange(population)).mean()), 0.0, population)
    values = local_clustering(simple, permutation(seed, population)[:wanted].sort().values)
    spread = float(values.std()) if wanted > 1 else math.nan
    return Clustering(float(values.mean()), spread * math.sqrt((1 - wanted / population) / wanted), wanted)


def homophily(graph: Graph, y: Tensor) -> float | None:
    """Share of the edges between labelled nodes that join one class (edge homophily; Zhu et al., NeurIPS 2020).

    Args:
        graph: on the CPU.
        y: int64 [num_nodes], −1 for no label; with several labels a node (floating) there is no such share.

    Returns:
        None for several labels, or where no edge joins labelled nodes.

    Raises:
        ValueError: another number of labels than of nodes.
    """
    if y.is_floating_point():
        return None
    check_vector("y", y, graph.num_nodes, (torch.int64,))
    alike, labelled = (torch.zeros(graph.num_nodes, dtype=torch.int64) for _ in range(2))
    p, i, labels, a, b = (t.numpy() for t in (graph.indptr, graph.indices, y, alike, labelled))
    parallel_edges(lambda lo, hi: _count_alike(p, i, labels, lo, hi, a, b), graph.indptr)
    return int(alike.sum()) / int(labelled.sum()) if int(labelled.sum()) else None


def degree_quantiles(degrees: Tensor, shares: Sequence[float] = QUANTILES) -> tuple[tuple[float, int], ...]:
    """Pairs (share, degree): the smallest degree that at least that share of the nodes does not exceed.

    Args:
        degrees: int64 [any].
        shares: in (0, 1].

    >>> degree_quantiles(torch.tensor([3, 1, 1, 9]), [0.5, 0.75])
    ((0.5, 1), (0.75, 3))
    """
    ordered, count = degrees.sort().values, len(degrees)
    return tuple((q, int(ordered[max(0, math.ceil(q * count - 1e-9) - 1)])) for q in shares) if count else ()


def graph_figures(graph: Graph, y: Tensor | None = None, *, seed: int = 0) -> GraphFigures:
    """Measure a graph.

    Args:
        graph: on the CPU.
        y: labels; see `homophily`.
        seed: of the sample of nodes that clustering takes where the graph is large.
    """
    simple = simple_undirected(graph)
    degrees = simple.in_degrees()
    return GraphFigures(
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges,
        mean_degree=simple.num_edges / max(1, graph.num_nodes),
        largest_degree=int(degrees.max()) if graph.num_nodes else 0,
        degree_quantiles=degree_quantiles(degrees),
        clustering=_clustering(simple, None, seed),
        reciprocity=(1.0 if simple.num_edges else None) if simple is graph else reciprocity(graph),
        homophily=None if y is None else homophily(graph, y),
    )
