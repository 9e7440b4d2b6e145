"""From an undirected graph to citations: every node has a date, the newer of two cites the older."""

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.randomness import uniform
from workbench.datasets.standin.streams import Draw, key_of
from workbench.kernels.csr import offsets
from workbench.kernels.hash import hash_index, unit_interval
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_edges

# In ogbn-arxiv a third of a node's edges lead into it, whatever its degree, up to a few times the mean degree; beyond,
# the share rises to nearly all within two decades. Dates that fall with the logarithm of the degree do the same.
_YOUNG_DEGREES = 3.0
_AGE_PER_FACTOR_OF_TWO = 0.35


def dates(name: str, seed: int, graph: Graph) -> Tensor:
    """int32 [nodes]: rank of every node in time, 0 the oldest; much-cited nodes are old.

    Args:
        name: of the stand-in.
        seed: any whole number.
        graph: undirected, both directions stored.
    """
    mean = graph.num_edges / graph.num_nodes
    degrees = graph.in_degrees().double()
    age = _AGE_PER_FACTOR_OF_TWO * torch.log2(degrees.clamp(min=1) / (_YOUNG_DEGREES * mean)).clamp(min=0)
    born = uniform(key_of(name, seed, Draw.TIME), torch.arange(graph.num_nodes)) - age
    ranks = torch.empty(graph.num_nodes, dtype=torch.int32)
    ranks[torch.argsort(born, stable=True)] = torch.arange(graph.num_nodes, dtype=torch.int32)
    return ranks


@compiled
def _cites(u, v, date, both, key):
    """Whether u cites v: it is newer, or the pair is one of those that cite each other."""
    low, high = (u, v) if u < v else (v, u)
    return date[u] > date[v] or unit_interval(hash_index(hash_index(key, low), high)) < both


@compiled
def _count(indptr, indices, date, both, key, lo, hi, counts):
    for v in range(lo, hi):
        for e in range(indptr[v], indptr[v + 1]):
            counts[v] += _cites(indices[e], v, date, both, key)


@compiled
def _write(indptr, indices, date, both, key, lo, hi, slots, out):
    for v in range(lo, hi):
        slot = slots[v]
        for e in range(indptr[v], indptr[v + 1]):
            if _cites(indices[e], v, date, both, key):
                out[slot] = indices[e]
                slot += 1


def citations(graph: Graph, date: Tensor, reciprocity: float, key: int) -> Graph:
    """The directed graph: row = cited node, its in-neighbours cite it.

    Args:
        graph: undirected, both directions stored.
        date: int32 [nodes], rank of every node in time.
        reciprocity: share of the edges whose reverse exists too.
        key: of the stream that chooses pairs that cite each other.
    """
    both = reciprocity / (2 - reciprocity)
    counts = torch.zeros(graph.num_nodes, dtype=torch.int64)
    p, i, d, c = graph.indptr.numpy(), graph.indices.numpy(), date.numpy(), counts.numpy()
    parallel_edges(lambda lo, hi: _count(p, i, d, both, key, lo, hi, c), graph.indptr)
    indptr = offsets(counts)
    indices = torch.empty(int(indptr[-1]), dtype=torch.int32)
    s, o = indptr.numpy(), indices.numpy()
    parallel_edges(lambda lo, hi: _write(p, i, d, both, key, lo, hi, s, o), graph.indptr)
    return Graph(indptr, indices)


def pairs_of(edges: int, reciprocity: float) -> int:
    """Unordered pairs among so many directed edges: m edges with a share r of them reciprocated join m (1 − r / 2)."""
    return round(edges * (1 - reciprocity / 2))
