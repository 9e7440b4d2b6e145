"""Citation graphs: direct an undirected graph by random dates, so that newer nodes cite older ones."""

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.randomness import uniform
from workbench.kernels.csr import offsets
from workbench.kernels.hash import hash_index, unit_interval
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_edges
from workbench.standin.streams import Draw, key_of

# In ogbn-arxiv a third of a node's edges are in-edges, whatever its degree, up to a few times the mean degree; beyond,
# the share rises to nearly 1 within two decades. Dates that decrease with the logarithm of the degree reproduce that.
_YOUNG_DEGREES = 3.0
_AGE_PER_FACTOR_OF_TWO = 0.35


def dates(name: str, seed: int, graph: Graph) -> Tensor:
    """Rank the nodes by random date; nodes of high degree tend to be old.

    Args:
        name: name of the stand-in.
        seed: a 64-bit integer.
        graph: an undirected graph with both directions stored.

    Returns:
        int32 [nodes], 0 is the oldest.
    """
    mean = graph.num_edges / graph.num_nodes
    degrees = graph.in_degrees().double()
    age = _AGE_PER_FACTOR_OF_TWO * torch.log2(degrees.clamp(min=1) / (_YOUNG_DEGREES * mean)).clamp(min=0)
    born = uniform(key_of(name, seed, Draw.TIME), torch.arange(graph.num_nodes)) - age
    ranks = torch.empty(graph.num_nodes, dtype=torch.int32)
    ranks[torch.argsort(born, stable=True)] = torch.arange(graph.num_nodes, dtype=torch.int32)
    return ranks


@compiled
def _cites(u, v, date, mutual, key):
    """Decide whether u cites v: u is newer, or the pair is mutual."""
    low, high = (u, v) if u < v else (v, u)
    return date[u] > date[v] or unit_interval(hash_index(hash_index(key, low), high)) < mutual


@compiled
def _count(indptr, indices, date, mutual, key, lo, hi, counts):
    for v in range(lo, hi):
        for e in range(indptr[v], indptr[v + 1]):
            counts[v] += _cites(indices[e], v, date, mutual, key)


@compiled
def _write(indptr, indices, date, mutual, key, lo, hi, slots, out):
    for v in range(lo, hi):
        slot = slots[v]
        for e in range(indptr[v], indptr[v + 1]):
            if _cites(indices[e], v, date, mutual, key):
                out[slot] = indices[e]
                slot += 1


def citations(graph: Graph, date: Tensor, reciprocity: float, key: int) -> Graph:
    """Direct an undirected graph: the in-neighbours of a node are those that cite it.

    Args:
        graph: an undirected graph with both directions stored.
        date: int32 [nodes], rank of every node by date.
        reciprocity: share of the edges whose reverse exists too.
        key: key of the random stream that chooses mutual pairs.

    Returns:
        The directed graph.
    """
    mutual = reciprocity / (2 - reciprocity)  # probability per pair
    counts = torch.zeros(graph.num_nodes, dtype=torch.int64)
    p, i, d, c = graph.indptr.numpy(), graph.indices.numpy(), date.numpy(), counts.numpy()
    parallel_edges(lambda lo, hi: _count(p, i, d, mutual, key, lo, hi, c), graph.indptr)
    indptr = offsets(counts)
    indices = torch.empty(int(indptr[-1]), dtype=torch.int32)
    s, o = indptr.numpy(), indices.numpy()
    parallel_edges(lambda lo, hi: _write(p, i, d, mutual, key, lo, hi, s, o), graph.indptr)
    return Graph(indptr, indices)


def num_pairs(edges: int, reciprocity: float) -> int:
    """Count the unordered pairs that m directed edges of reciprocity r join: m (1 - r / 2)."""
    return round(edges * (1 - reciprocity / 2))
