"""The streaming edge-cut partitioner: the owner of every node is decided in one pass over the edges."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from workbench.core.edge_stream import EdgeSource, count_nodes, edge_chunks
from workbench.core.errors import check_at_least, check_choice, check_seed
from workbench.partition.balance import fill_empty_parts
from workbench.partition.graph.fennel import fennel_objective
from workbench.partition.graph.greedy import GreedyPartition, Objective
from workbench.partition.graph.ldg import ldg_objective
from workbench.partition.graph.random import random_nodes
from workbench.partition.graph.range import range_nodes

IMBALANCE = 0.1
_MAX_PARTS = 2**31 - 1
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
