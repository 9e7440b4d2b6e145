"""Edge permutation bias: how far an order of edge buckets is from a random order of the edges (MariusGNN, section 5).

After each state every node has been trained with some share of its edges. In a random order these shares are alike;
B is the largest difference between two nodes at the end of any state.
"""

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_ids, check_vector
from workbench.core.graph import Graph
from workbench.outofcore.bucket_order import BucketOrder


def partition_bias(order: BucketOrder, *, bucket_edges: Tensor | None = None) -> float:
    """B over partitions: the share of edges trained, of those that start or end in a partition.

    Args:
        order: of the buckets.
        bucket_edges: int64 [p, p], edges from partition i to partition j; None: equally many in all buckets.

    Returns:
        The largest difference of two partitions with edges, in [0, 1].

    Raises:
        ValueError: another shape.

    Source: Waleffe et al., "MariusGNN" (EuroSys 2023), section 5.2.
    """
    p, states = order.num_partitions, order.num_states
    weight = torch.ones(p, p) if bucket_edges is None else bucket_edges
    if weight.shape != (p, p):
        raise ValueError(f"bucket_edges is {list(weight.shape)}; it must be [{p}, {p}], a number for each bucket")
    weight = weight.double()
    at = order.state_of_bucket.long()
    ends = torch.arange(p)
    trained = torch.zeros(p * states, dtype=torch.float64)
    trained.index_add_(0, (ends[:, None] * states + at).flatten(), weight.flatten())
    within = torch.eye(p, dtype=torch.bool)
    other = torch.where(within, torch.zeros_like(weight), weight)  # a bucket within a partition counts once
    trained.index_add_(0, (ends[None, :] * states + at).flatten(), other.flatten())
    return _largest_difference(trained.view(p, states).cumsum(1))


def node_bias(order: BucketOrder, graph: Graph, partition: Tensor, *, min_edges: int = 1) -> float:
    """B over nodes: the share of edges trained, of those that start or end at a node.

    Args:
        order: of the buckets.
        graph: its edges are trained once each.
        partition: int64 or int32 [num_nodes], the partition of each node.
        min_edges: nodes with fewer edges do not count. A node with one edge is always trained either not at all or
            completely, so two of these make B = 1 in every order.

    Returns:
        The largest difference of two nodes with so many edges, in [0, 1].

    Raises:
        IndexError: a partition that the order does not have.
        ValueError: `partition` has another length, or `min_edges` is less than 1.
        TypeError: it is not an integer tensor.

    Source: Waleffe et al., "MariusGNN" (EuroSys 2023), section 5.2.
    """
    check_at_least("min_edges", min_edges, 1)
    check_vector("partition", partition, graph.num_nodes, (torch.int64, torch.int32))
    partition = check_ids("partition", partition, order.num_partitions).cpu()
    dst = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees().cpu())
    src = graph.indices.long().cpu()
    at = order.state_of_bucket[partition[src], partition[dst]]
    by_state = at.argsort(stable=True)
    ends = at.bincount(minlength=order.num_states).cumsum(0)[:-1]
    loops = src == dst
    total = _count_ends(src, dst, loops, graph.num_nodes)
    some = total >= min_edges
    trained, worst = torch.zeros_like(total), 0.0
    for edges in by_state.tensor_split(ends):
        trained += _count_ends(src[edges], dst[edges], loops[edges], graph.num_nodes)
        share = trained[some] / total[some]
        worst = max(worst, float(share.max() - share.min())) if len(share) else worst
    return worst


def _count_ends(src: Tensor, dst: Tensor, loops: Tensor, num_nodes: int) -> Tensor:
    return src.bincount(minlength=num_nodes) + dst[~loops].bincount(minlength=num_nodes)


def _largest_difference(trained: Tensor) -> float:
    """Of rows' cumulated counts, divided by the last."""
    some = trained[trained[:, -1] > 0]
    share = some / some[:, -1:]
    return float((share.amax(0) - share.amin(0)).max()) if len(share) else 0.0
