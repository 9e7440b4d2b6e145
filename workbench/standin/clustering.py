"""Mean local clustering coefficient (Watts, Strogatz, Nature 1998), exact or from a sample of nodes."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.core.errors import check_at_least
from workbench.core.graph import Graph
from workbench.core.randomness import permutation
from workbench.kernels.csr import offsets
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_edges
from workbench.standin.edge_statistics import lower_bound, simple_undirected

_MAX_MERGE_RATIO = 16  # of two lists' lengths up to which a merge beats binary searches
# Operations (sum of squared degrees) up to which all nodes are counted, and bounds of a sample's size.
_EXACT_COST, _MIN_SAMPLE, _MAX_SAMPLE = 2_000_000_000, 2_000, 20_000


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
