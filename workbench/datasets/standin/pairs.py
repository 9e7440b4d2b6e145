"""Lists of unordered pairs of nodes, altered in place where they are large."""

from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.kernels.csr import offsets, symmetric_rows
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_edges, parallel_rows


class Pairs(NamedTuple):
    """Unordered pairs of nodes, int32 both."""

    left: Tensor
    right: Tensor


def joined(parts: list[Pairs]) -> Pairs:
    """One list after the other."""
    return Pairs(torch.cat([part.left for part in parts]), torch.cat([part.right for part in parts]))


@compiled
def _rename(ids, names, lo, hi):
    for i in range(lo, hi):
        ids[i] = names[ids[i]]


def renamed(pairs: Pairs, names: Tensor) -> Pairs:
    """The pairs, in place, with node v called `names[v]`.

    Args:
        pairs: to alter.
        names: int32 [nodes].
    """
    n = names.numpy()
    for ids in (ends.numpy() for ends in pairs):
        parallel_rows(lambda lo, hi, ids=ids: _rename(ids, n, lo, hi), len(ids))
    return pairs


def without_loops(pairs: Pairs) -> Pairs:
    """The pairs whose ends differ: the last ones fill, in place, the holes that the few loops leave."""
    loops = (pairs.left == pairs.right).nonzero()[:, 0]
    kept = len(pairs.left) - len(loops)
    holes = loops[loops < kept]
    moved = kept + (pairs.left[kept:] != pairs.right[kept:]).nonzero()[:, 0]
    for ends in pairs:
        ends[holes] = ends[moved]
    return Pairs(pairs.left[:kept], pairs.right[:kept])


def simple_graph(pairs: Pairs, nodes: int) -> Graph:
    """The graph of the pairs (altered) in both directions, rows ascending, without self loops and repeats."""
    pairs = without_loops(pairs)
    csr = symmetric_rows(pairs.left, pairs.right, None, nodes)
    return Graph(csr.indptr, csr.indices)


@compiled
def _count_below(indptr, indices, lo, hi, counts):
    for v in range(lo, hi):
        for e in range(indptr[v], indptr[v + 1]):
            counts[v] += indices[e] < v


@compiled
def _write_below(indptr, indices, lo, hi, slots, left, right):
    for v in range(lo, hi):
        slot = slots[v]
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] < v:
                left[slot], right[slot] = v, indices[e]
                slot += 1


def pairs_of_graph(graph: Graph) -> Pairs:
    """Every pair of an undirected graph once."""
    counts = torch.zeros(graph.num_nodes, dtype=torch.int64)
    p, i, c = graph.indptr.numpy(), graph.indices.numpy(), counts.numpy()
    parallel_edges(lambda lo, hi: _count_below(p, i, lo, hi, c), graph.indptr)
    slots = offsets(counts)
    left, right = (torch.empty(int(slots[-1]), dtype=torch.int32) for _ in range(2))
    s, a, b = slots.numpy(), left.numpy(), right.numpy()
    parallel_edges(lambda lo, hi: _write_below(p, i, lo, hi, s, a, b), graph.indptr)
    return Pairs(left, right)


@compiled
def _mark_apart(left, right, classes, allowed, lo, hi, apart):
    for i in range(lo, hi):
        a, b = left[i], right[i]
        apart[i] = classes[a] != classes[b] and allowed[a] and allowed[b]


def where_apart(pairs: Pairs, classes: Tensor, allowed: Tensor) -> Tensor:
    """int64: positions of the pairs that join two classes and whose ends both are allowed.

    Args:
        pairs: any.
        classes: int64 [nodes].
        allowed: bool [nodes].
    """
    apart = torch.empty(len(pairs.left), dtype=torch.bool)
    a, b, c, may, out = (t.numpy() for t in (*pairs, classes, allowed, apart))
    parallel_rows(lambda lo, hi: _mark_apart(a, b, c, may, lo, hi, out), len(apart))
    return apart.nonzero()[:, 0]
