"""`locality_factors`: which nodes locality-aware sampling draws more often, from the ids of a device's buffer."""

import math

import torch
from torch import Tensor

from workbench.core.csr_checks import check_sources
from workbench.core.errors import check_at_least, check_ids
from workbench.core.graph import Graph
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_edges
from workbench.sampling.sampler import check_graph


def locality_factors(graph: Graph, buffered: Tensor, *, factor: float, hops: int = 0) -> Tensor:
    """Compute a factor per node: `factor` for nodes from which sampling can reach the buffer within some hops, else 1.

    Sampling goes from a node to its in-neighbours. A node is 0 hops from the buffer if its row is in it, and j + 1 hops
    if an in-neighbour is j hops away: drawing it leads the next layer to the buffer. So the boost follows out-edges
    from the buffer, against the direction of sampling.

    Args:
        graph: the graph that is sampled.
        buffered: int64 or int32 node ids, each once: the rows that the device reads without cost
            (`placement.buffers[device]`).
        factor: f ≥ 1, by which the nodes' weights are multiplied; 1: plain sampling.
        hops: j; 0 boosts the buffered nodes alone.

    Returns:
        float32 [num_nodes], for `LocalitySampler` and `LadiesSampler`.

    Raises:
        TypeError: ids of another dtype.
        ValueError: duplicate ids, a factor below 1 or above 2²⁰, or a negative number of hops.
        IndexError: an id out of range.

    Source: Song and Jiang, "Rethinking Graph Data Placement for Graph Neural Network Training on Multiple GPUs".

    >>> path = Graph.from_edges([0, 1, 2], [1, 2, 3])  # 0 → 1 → 2 → 3
    >>> locality_factors(path, torch.tensor([1]), factor=4, hops=1)  # node 2 reads node 1
    tensor([1., 4., 4., 1.])
    """
    check_graph(graph)
    check_at_least("hops", hops, 0)
    buffered = check_ids("buffered", buffered, graph.num_nodes, unique=True).to(graph.device)
    if not 1 <= factor <= 2**20 or math.isnan(factor):
        raise ValueError(f"factor is {factor!r}; it must be from 1 (plain sampling) to 2²⁰")
    near = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    near[buffered] = True
    if hops:
        check_sources(graph.indices, graph.num_nodes, IndexError)
    for _ in range(hops):
        near = _one_hop_more(graph, near)
    return torch.where(near, float(factor), 1.0)


def _one_hop_more(graph: Graph, near: Tensor) -> Tensor:
    """Add the nodes that have an in-neighbour in a set, given and returned as a mask."""
    if near.device.type != "cpu":
        return one_hop_more_torch(graph, near)
    more = torch.empty_like(near)
    arrays = graph.indptr.numpy(), graph.indices.numpy(), near.numpy(), more.numpy()
    parallel_edges(lambda lo, hi: _find_in_neighbor(lo, hi, *arrays), graph.indptr, 1)
    return more


@compiled
def _find_in_neighbor(lo, hi, indptr, indices, near, more):
    for v in range(lo, hi):
        found, e = near[v], indptr[v]
        while not found and e < indptr[v + 1]:
            found = near[indices[e]]
            e += 1
        more[v] = found


def one_hop_more_torch(graph: Graph, near: Tensor) -> Tensor:
    """Compute as `_one_hop_more` does, in plain torch for any device; the oracle of the compiled kernel."""
    rows = torch.repeat_interleave(torch.arange(graph.num_nodes, device=near.device), graph.in_degrees())
    more = near.clone()
    more[rows[near[graph.indices.long()]]] = True
    return more
