"""The streaming edge-cut partitioner: the owner of every node is decided in one pass over the edges."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.edge_stream import EdgeSource, count_nodes, edge_chunks
from workbench.core.errors import check_at_least, check_choice, check_seed, check_sources
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, permutation, stream
from workbench.kernels.jit import compiled
from workbench.partition.balance import cut_evenly, fill_empty_parts
from workbench.partition.metis import metis, symmetric_adjacency

IMBALANCE = 0.1

_MAX_PARTS = 2**31 - 1


class Objective(NamedTuple):
    """What a part P is worth to a node v: `|P ∩ Γ(v)| · factor[|P|] − cost[|P|]`.

    Args:
        factor: float64 [capacity + 1], by size of the part.
        cost: float64 [capacity + 1], by size of the part.
    """

    factor: Tensor
    cost: Tensor


def fennel_objective(num_nodes: int, num_parts: int, num_edges: int | None, capacity: int) -> Objective:
    """Return the objective `|P ∩ Γ(v)| − α γ |P|^(γ−1)`: neighbours in the part P, minus a cost of its size.

    γ = 1.5 and `α = √k · m / n^1.5`. m is half of the stream's `num_edges`: in a symmetric stream that is the paper's
    number of undirected edges, and in any stream the number that count on average, since an edge counts only if its
    source has arrived before.
    """
    if num_edges is None:
        raise ValueError(
            "num_edges is None, but fennel weighs sizes by the number of edges, which this stream does not tell; pass "
            'num_edges=, or use method="ldg"'
        )
    alpha = num_parts**0.5 * (num_edges / 2) / max(1, num_nodes) ** _GAMMA
    roots = torch.from_numpy(np.sqrt(np.arange(capacity + 1.0)))  # |P|^(γ−1); torch's depend on the machine's rounding
    return Objective(torch.ones_like(roots), alpha * _GAMMA * roots)


def ldg_objective(num_nodes: int, num_parts: int, num_edges: int | None, capacity: int) -> Objective:
    """Return the objective `|P ∩ Γ(v)| · (1 − |P| / C)`: neighbours in the part P, less the fuller it is."""
    sizes = torch.arange(capacity + 1, dtype=torch.float64)
    return Objective(1 - sizes / capacity, torch.zeros_like(sizes))


_OBJECTIVES: Mapping[str, Callable[[int, int, int | None, int], Objective]] = MappingProxyType(
    {"ldg": ldg_objective, "fennel": fennel_objective}
)

STREAMING_METHODS = (*_OBJECTIVES, "random", "range")


def partition_stream(
    edges: EdgeSource,
    num_parts: int,
    *,
    num_nodes: int | None = None,
    method: str = "ldg",
    imbalance: float = IMBALANCE,
    num_edges: int | None = None,
    seed: int = 0,
    progress: Callable[[int], object] | None = None,
) -> Tensor:
    """Assign every node to one of `num_parts` parts in one pass over the edges, in memory for the nodes and one chunk.

    An edge-cut: the owner of a node is to have all edges into it (`split_graph`). The greedy methods decide a node's
    part for good when its first run of consecutive edges ends, by the sources of these edges that were assigned before
    (`GreedyPartition`). They are therefore best where the edges are grouped by destination, as a graph's are, and both
    directions of an edge are in the stream; edges in random order leave them hardly anything to see. Where the stream
    is cut into chunks does not matter; the order of its edges does.

    Args:
        edges: a `Graph`, in memory or memory-mapped; an `EdgeFile`; or an iterable of pairs (sources, destinations) of
            consecutive edges, int32 or int64 vectors of equal length.
        num_parts: number of parts, 1 to the number of nodes.
        num_nodes: number of nodes; needed unless `edges` is a graph.
        method: "ldg" or "fennel" (greedy), "random" or "range" (runs of node ids); the last two read no edge.
        imbalance: allowed excess of a part's nodes over the mean for the greedy methods, as a fraction: no part has
            more than ⌈(1 + imbalance) · num_nodes / num_parts⌉. Parts of the others differ by at most one node.
        num_edges: number of edges, which "fennel" needs; by default that of a graph, a binary `EdgeFile` or a list.
        seed: of "random"; the other methods do not depend on it.
        progress: called after every chunk with the number of edges read.

    Returns:
        int32 [num_nodes] in [0, num_parts); no part is empty.

    Raises:
        ValueError: an unknown method, an impossible number of parts, `num_nodes` or `num_edges` missing.
        TypeError: ids that are not integers, or chunks that are not pairs.
        IndexError: an id out of range; the message names the chunk.

    Source: Hoang et al., "BatchGNN" (2023), section 3; Stanton and Kliot (KDD 2012); Tsourakakis et al. (WSDM 2014).

    >>> partition_stream([([1, 0], [0, 1]), ([3, 2], [2, 3])], 2, num_nodes=4).tolist()
    [0, 0, 1, 1]
    """
    check_choice("method", method, STREAMING_METHODS)
    nodes = count_nodes(edges, num_nodes)
    check_num_parts(num_parts, nodes)
    check_seed(seed)
    if not 0 <= imbalance < math.inf:
        raise ValueError(f"imbalance is {imbalance}; it must be a fraction of the mean size, such as {IMBALANCE}")
    if not nodes:
        return torch.zeros(0, dtype=torch.int32)
    if method == "random":
        return random_nodes(nodes, num_parts, seed).to(torch.int32)
    if method == "range":
        return range_nodes(nodes, num_parts).to(torch.int32)
    capacity = min(nodes, math.ceil((1 + imbalance) * nodes / num_parts))
    known = _count_edges(edges, nodes, num_edges) if method == "fennel" else num_edges
    objective = _OBJECTIVES[method](nodes, num_parts, known, capacity)
    return fill_empty_parts(_greedy(edges, nodes, num_parts, objective, progress), num_parts)


def check_num_parts(num_parts: int, num_nodes: int) -> None:
    """Check that every part can have a node.

    Raises:
        ValueError: if there are fewer nodes than parts.
    """
    check_at_least("num_parts", num_parts, 1, most=_MAX_PARTS)
    if num_parts > max(1, num_nodes):
        raise ValueError(
            f"num_parts is {num_parts}, but the graph has {num_nodes} nodes; ask for at most one part per node"
        )


def _greedy(
    edges: EdgeSource,
    num_nodes: int,
    num_parts: int,
    objective: Objective,
    progress: Callable[[int], object] | None,
) -> Tensor:
    partition, done = GreedyPartition(num_nodes, num_parts, objective), 0
    for src, dst in edge_chunks(edges, num_nodes):
        partition.add(src, dst)
        done += len(src)
        if progress is not None:
            progress(done)
    return partition.finish()


def _count_edges(edges: EdgeSource, num_nodes: int, num_edges: int | None) -> int | None:
    """Return the number of edges, if it is known before they are read."""
    if num_edges is not None:
        check_at_least("num_edges", num_edges, 0)
        return num_edges
    if isinstance(edges, Sequence):
        return sum(len(src) for src, _ in edge_chunks(edges, num_nodes))
    return getattr(edges, "num_edges", None)


_UNASSIGNED = -1


class GreedyPartition:
    """Assigns nodes in one pass over edges, in O(num_nodes + num_parts) memory.

    A node arrives with a run of consecutive edges into it, and is assigned when the run ends: Γ(v) are the sources of
    the run that have been assigned before, a source of several edges counting as often. Later runs into the same node
    change nothing. Nodes without an edge into them are assigned after the last edge, in ascending order, with Γ(v)
    empty. Of equally good parts the one with fewest nodes is chosen, of these the first; full parts are never chosen.

    Args:
        num_nodes: number of nodes.
        num_parts: number of parts.
        objective: by which a part is chosen; the length of its tables minus one is the capacity of a part, which must
            provide room for all nodes.
    """

    def __init__(self, num_nodes: int, num_parts: int, objective: Objective) -> None:
        self._owner = torch.full((num_nodes,), _UNASSIGNED, dtype=torch.int32)
        self._sizes, self._counts = (torch.zeros(num_parts, dtype=torch.int64) for _ in range(2))
        self._arriving = torch.full((1,), _UNASSIGNED, dtype=torch.int64)
        tensors = (self._owner, self._sizes, self._counts, self._arriving, *objective)
        self._state = [tensor.numpy() for tensor in tensors]

    def add(self, src: Tensor, dst: Tensor) -> None:
        """Read the next edges, int64 [num_edges] each, in [0, num_nodes)."""
        _read_edges(src.numpy(), dst.numpy(), *self._state)

    def finish(self) -> Tensor:
        """Assign the nodes that are left and return the part of every node, int32 [num_nodes]."""
        _assign_rest(*self._state)
        return self._owner


@compiled
def _read_edges(src, dst, owner, sizes, counts, arriving, factor, cost):
    node = arriving[0]
    for e in range(len(dst)):
        if dst[e] != node:
            if node >= 0 and owner[node] < 0:
                _assign(node, owner, sizes, counts, factor, cost)
            node = dst[e]
        part = owner[src[e]]
        if part >= 0 and owner[node] < 0:
            counts[part] += 1
    arriving[0] = node


@compiled
def _assign_rest(owner, sizes, counts, arriving, factor, cost):
    if arriving[0] >= 0 and owner[arriving[0]] < 0:
        _assign(arriving[0], owner, sizes, counts, factor, cost)
    for node in range(len(owner)):
        if owner[node] < 0:
            _assign(node, owner, sizes, counts, factor, cost)


@compiled
def _assign(node, owner, sizes, counts, factor, cost):
    """Assign a node to the best part and clear the counts."""
    best, most = -1, 0.0
    for part in range(len(sizes)):
        size = sizes[part]
        if size + 1 < len(factor):
            value = counts[part] * factor[size] - cost[size]
            if best < 0 or value > most or (value == most and size < sizes[best]):
                best, most = part, value
        counts[part] = 0
    owner[node] = best
    sizes[best] += 1


_GAMMA = 1.5


def random_nodes(num_nodes: int, num_parts: int, seed: int) -> Tensor:
    """Cut a random permutation of the nodes into runs of equal length."""
    return cut_evenly(permutation(stream(seed, Purpose.PARTITION), num_nodes), num_parts)


def range_nodes(num_nodes: int, num_parts: int) -> Tensor:
    """Cut the node ids into runs of equal length."""
    return cut_evenly(torch.arange(num_nodes), num_parts)


def metis_nodes(g: Graph, num_parts: int, seed: int) -> Tensor:
    """Partition the graph's undirected simple version."""
    check_sources(g.indices, g.num_nodes, IndexError)
    return metis(*symmetric_adjacency(g.indptr.cpu(), g.indices.cpu()), num_parts, seed=seed)
