"""`relay_windows`: macrobatch sampling of all ranks in one process, the oracle of real ranks."""

from collections.abc import Sequence

from torch import Tensor

from workbench.core.errors import check_at_least
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.traffic import Traffic
from workbench.sampling.all_to_all import run_in_lockstep
from workbench.sampling.owned_graph import OwnedGraph, checked_owner
from workbench.sampling.relay import sample_relayed
from workbench.sampling.sampler import Sampler, check_graph


def relay_windows(
    graph: Graph,
    seeds: Sequence[Sequence[Tensor]],
    *,
    sampler: Sampler,
    owner: Tensor,
    num_ranks: int,
    steps: Sequence[Sequence[int]],
    exclude_edges: Sequence[Sequence[Tensor | None]] | None = None,
    traffic: Sequence[Traffic] | None = None,
) -> list[list[MiniBatch]]:
    """Sample a window of mini-batches on each rank, all ranks in lockstep in this process.

    Args:
        graph: the whole graph.
        seeds: by rank and mini-batch, int64 or int32 node ids, each once per mini-batch; windows may differ in size.
        sampler: draws every row independently of the others.
        owner: int64 or int32 [num_nodes], the rank that owns each node.
        num_ranks: number of ranks.
        steps: number of each mini-batch, by rank.
        exclude_edges: int64 or int32, by rank and mini-batch, raw-graph edge ids that must not be drawn, or None.
        traffic: counts what each rank receives, as for `sample_relayed`; by rank.

    Returns:
        The mini-batches by rank, without exchanges; each equals `sampler.sample(graph, seeds, step=step)`.

    Raises:
        ValueError: as `sample_relayed` and `OwnedGraph.of`; or not one item per rank.
        IndexError: a seed or an edge to exclude is not in the graph.

    Source: BatchGNN, section 3, "Macrobatch sampling".

    >>> import torch, workbench as wb
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> windows = wb.relay_windows(
    ...     path, [[torch.tensor([3]), torch.tensor([2])], []], steps=[[0, 1], []], num_ranks=2,
    ...     sampler=wb.FullNeighborSampler(2), owner=torch.tensor([0, 1, 0, 1]))
    >>> [[mb.node_ids.tolist() for mb in window] for window in windows]
    [[[3, 2, 1], [2, 1, 0]], []]
    """
    check_graph(graph)
    check_at_least("num_ranks", num_ranks, 1)
    owner = checked_owner(owner, graph, num_ranks)
    by_rank = {"seeds": seeds, "steps": steps, "exclude_edges": exclude_edges, "traffic": traffic}
    for name, items in by_rank.items():
        if items is not None and len(items) != num_ranks:
            raise ValueError(f"{name} has {len(items)} items for {num_ranks} ranks; pass one per rank")
    for edges in (one for window in exclude_edges or () for one in window if one is not None):
        graph.edge_positions(edges)
    return run_in_lockstep(
        [
            sample_relayed(
                OwnedGraph(graph, owner, rank, num_ranks),
                seeds[rank],
                sampler=sampler,
                steps=steps[rank],
                exclude_edges=None if exclude_edges is None else exclude_edges[rank],
                traffic=None if traffic is None else traffic[rank],
            )
            for rank in range(num_ranks)
        ]
    )
