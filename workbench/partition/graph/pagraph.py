"""PaGraph's partition: training nodes one by one, each to the part that shares most of its neighbourhood.

The published algorithm intersects sets of nodes, O(N²). Here a search backwards from each training node counts the
training nodes of every part in its neighbourhood, so a node costs the edges of its neighbourhood; closures grow by
nodes that the part has not reached with as many hops left, so a part's closure costs at most hops times edges in all.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_ids, check_sources, check_type
from workbench.core.graph import Graph
from workbench.kernels.jit import compiled

_MAX_HOPS = 126  # hops left are int8


class PaGraphParts(NamedTuple):
    """A partition of training nodes, and the nodes that each part's batches can read.

    Args:
        assignment: int64 [num_train], the part of each training node.
        nodes: per part int64 [any], its training nodes and all that reach them within the hops, ascending.
    """

    assignment: Tensor
    nodes: list[Tensor]


def pagraph_parts(graph: Graph, train_ids: Tensor, num_parts: int, *, num_hops: int) -> PaGraphParts:
    """Partition the training nodes of a graph so that the parts' neighbourhoods overlap little and sizes are equal.

    Training nodes v go in turn to the part i with the largest |TV_i ∩ IN(v)| · (TV_avg − |TV_i|) / |PV_i|; ties go to
    the part with the fewest training nodes, then to the first. TV_i are the training nodes of a part, TV_avg is their
    mean number at the end, IN(v) the nodes that reach v within the hops, PV_i all that reach TV_i within the hops.

    Args:
        graph: the graph; the parts are computed on the CPU.
        train_ids: int64 or int32 node ids, each once, in the order of their assignment.
        num_parts: number of parts, at least 1.
        num_hops: number of layers of the model, 1 to 126.

    Raises:
        ValueError: duplicate ids, or a number out of range.
        IndexError: an id or an edge's source out of range.

    Source: Lin et al., "PaGraph: Scaling GNN training on large graphs via computation-aware caching", SoCC 2020.
    """
    check_type("graph", graph, Graph, "pass a wb.Graph")
    check_at_least("num_parts", num_parts, 1)
    check_at_least("num_hops", num_hops, 1, most=_MAX_HOPS)
    train = check_ids("train_ids", train_ids, graph.num_nodes, unique=True).cpu()
    check_sources(graph.indices, graph.num_nodes, IndexError)
    assignment = torch.empty(len(train), dtype=torch.int64)
    hops = torch.full((num_parts, graph.num_nodes), -1, dtype=torch.int8)
    arrays = [tensor.cpu().numpy() for tensor in (graph.indptr, graph.indices, train, hops, assignment)]
    _assign(*arrays, int(num_hops))
    return PaGraphParts(assignment, [(reached >= 0).nonzero()[:, 0] for reached in hops])


@compiled
def _assign(indptr, indices, train, hops, assignment, num_hops):
    """`hops[i, u]`: the most hops left with which part i has reached node u; −1: not reached."""
    parts, nodes = hops.shape
    owner = np.full(nodes, -1, np.int64)
    seen = np.full(nodes, -1, np.int64)
    queue = np.empty(nodes, np.int64)
    size, closure, shared = np.zeros(parts, np.int64), np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    mean = len(train) / parts
    for i in range(len(train)):
        _count_owners(indptr, indices, train[i], i, num_hops, owner, seen, queue, shared)
        best, most = -1, 0.0
        for part in range(parts):
            score = shared[part] * (mean - size[part]) / max(1, closure[part])
            if best < 0 or score > most or (score == most and size[part] < size[best]):
                best, most = part, score
        assignment[i] = best
        owner[train[i]] = best
        size[best] += 1
        closure[best] += _extend(indptr, indices, train[i], num_hops, hops[best], queue)


@compiled
def _count_owners(indptr, indices, node, stamp, num_hops, owner, seen, queue, shared):
    """Count the training nodes of each part that reach a node: a breadth-first search."""
    shared[:] = 0
    queue[0], seen[node] = node, stamp
    lo, end = 0, 1
    for _ in range(num_hops):
        hi = end
        for at in range(lo, hi):
            v = queue[at]
            for e in range(indptr[v], indptr[v + 1]):
                u = indices[e]
                if seen[u] != stamp:
                    seen[u] = stamp
                    queue[end] = u
                    end += 1
                    if owner[u] >= 0:
                        shared[owner[u]] += 1
        lo = hi


@compiled
def _extend(indptr, indices, node, num_hops, hops, queue):
    """Add what reaches a node to a part's closure; return the number of new nodes."""
    if hops[node] >= num_hops:
        return 0
    new = 1 if hops[node] < 0 else 0
    hops[node] = num_hops
    queue[0] = node
    lo, end = 0, 1
    for left in range(num_hops - 1, -1, -1):
        hi = end
        for at in range(lo, hi):
            v = queue[at]
            for e in range(indptr[v], indptr[v + 1]):
                u = indices[e]
                if hops[u] < left:
                    new += hops[u] < 0
                    hops[u] = left
                    if left:
                        queue[end] = u
                        end += 1
        lo = hi
    return new
