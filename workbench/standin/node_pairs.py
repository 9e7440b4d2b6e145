"""Lists of unordered node pairs, the edges of an undirected graph; large ones are modified in place."""

from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.kernels.csr import offsets
from workbench.kernels.jit import compiled
from workbench.kernels.symmetric_csr import symmetric_rows
from workbench.kernels.threads import parallel_edges, parallel_rows


class Pairs(NamedTuple):
    """Unordered pairs of nodes: two int32 vectors of equal length."""

    left: Tensor
    right: Tensor


def concatenate(parts: list[Pairs]) -> Pairs:
    """Concatenate lists of pairs."""
    return Pairs(torch.cat([part.left for part in parts]), torch.cat([part.right for part in parts]))


@compiled
def _relabel(ids, new_ids, lo, hi):
    for i in range(lo, hi):
        ids[i] = new_ids[ids[i]]


def relabel(pairs: Pairs, new_ids: Tensor) -> Pairs:
    """Replace node v by `new_ids[v]`, in place.

    Args:
        pairs: the pairs; modified.
        new_ids: int32 [nodes].

    Returns:
        `pairs`.
    """
    n = new_ids.numpy()
    for ids in (ends.numpy() for ends in pairs):
        parallel_rows(lambda lo, hi, ids=ids: _relabel(ids, n, lo, hi), len(ids))
    return pairs


def drop_self_loops(pairs: Pairs) -> Pairs:
    """Drop pairs of a node with itself, in place: the last pairs fill the gaps, which are few."""
    loops = (pairs.left == pairs.right).nonzero()[:, 0]
    count = len(pairs.left) - len(loops)
    gaps = loops[loops < count]
    moved = count + (pairs.left[count:] != pairs.right[count:]).nonzero()[:, 0]
    for ends in pairs:
        ends[gaps] = ends[moved]
    return Pairs(pairs.left[:count], pairs.right[:count])


def simple_graph(pairs: Pairs, nodes: int) -> Graph:
    """Build the undirected graph of some pairs: both directions, ascending rows, no self loops, no duplicates.

    Args:
        pairs: the pairs; modified.
        nodes: number of nodes.

    Returns:
        The graph.
    """
    pairs = drop_self_loops(pairs)
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
    """List every edge of an undirected graph once, in one direction."""
    counts = torch.zeros(graph.num_nodes, dtype=torch.int64)
    p, i, c = graph.indptr.numpy(), graph.indices.numpy(), counts.numpy()
    parallel_edges(lambda lo, hi: _count_below(p, i, lo, hi, c), graph.indptr)
    slots = offsets(counts)
    left, right = (torch.empty(int(slots[-1]), dtype=torch.int32) for _ in range(2))
    s, a, b = slots.numpy(), left.numpy(), right.numpy()
    parallel_edges(lambda lo, hi: _write_below(p, i, lo, hi, s, a, b), graph.indptr)
    return Pairs(left, right)


@compiled
def _mark_between_classes(left, right, classes, allowed, lo, hi, found):
    for i in range(lo, hi):
        a, b = left[i], right[i]
        found[i] = classes[a] != classes[b] and allowed[a] and allowed[b]


def between_classes(pairs: Pairs, classes: Tensor, allowed: Tensor) -> Tensor:
    """Find the pairs of nodes of different classes that are both allowed.

    Args:
        pairs: the pairs.
        classes: int64 [nodes].
        allowed: bool [nodes].

    Returns:
        int64, positions in `pairs`.
    """
    found = torch.empty(len(pairs.left), dtype=torch.bool)
    a, b, c, d, out = (t.numpy() for t in (*pairs, classes, allowed, found))
    parallel_rows(lambda lo, hi: _mark_between_classes(a, b, c, d, lo, hi, out), len(found))
    return found.nonzero()[:, 0]
