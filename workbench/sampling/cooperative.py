"""Cooperative sampling: all ranks sample one global batch together, each the in-edges of the nodes that it owns.

Balın, LaSalle, Çatalyürek: "Cooperative minibatching in graph neural networks", algorithm 1. S^0 are the seeds. In
every layer rank p draws the rows of its nodes S_p^l, asks the owners of the sources S̃_p^{l+1} for those of other ranks,
and continues with S_p^{l+1}: the nodes that it owns of all that it or another rank drew.

Communication is the caller's: `sample_owned` yields the ids for every rank and is sent what every rank yielded for it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import check_at_least, check_ids, check_seed, check_type, check_vector
from workbench.core.exchange import Exchange
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.kernels.relabel import relabeler
from workbench.sampling.all_to_all import AllToAll, run_in_lockstep
from workbench.sampling.drawn import Drawn, check_drawn, edge_values
from workbench.sampling.halo_ids import SplitIds, local_ids, split_ids
from workbench.sampling.owned_graph import OwnedGraph, checked_owner
from workbench.sampling.sampler import Sampler, check_graph, check_sampler, copy_ids, require_row_independence


def sample_owned(
    owned: OwnedGraph, seeds: Tensor, *, sampler: Sampler, step: int = 0, exclude_edges: Tensor | None = None
) -> AllToAll[MiniBatch]:
    """Sample one rank's share of a global batch; the union over all ranks is the batch that one process samples.

    Every value it yields is a list of int64 vectors, one per rank (its own is empty); it is to be sent the list of what
    every rank yielded for this one: an all-to-all exchange. All ranks yield equally often.

    Args:
        owned: the rank's part of the graph.
        seeds: int64 or int32 node ids, each once: the global batch, the same for all ranks. A rank samples those that
            it owns, possibly none.
        sampler: draws every row independently of the others.
        step: number of the batch, which selects the random variates; the same for all ranks.
        exclude_edges: int64 or int32, raw-graph edge ids that must not be drawn, of any rank.

    Returns:
        A generator, which returns the rank's batch: `node_ids` are the nodes that it owns, S_p^l their prefixes; the
        sources of a block are its owned nodes, then the halo, grouped by owner, which the layer's `Exchange` fills.

    Raises:
        TypeError: `owned`, the sampler or ids of another type.
        ValueError: duplicate seeds, or a sampler whose rows depend on each other; the message names it.
        IndexError: a seed out of range.

    Source: Cooperative Minibatching, algorithm 1.
    """
    check_type("owned", owned, OwnedGraph, "pass an OwnedGraph: OwnedGraph.of(graph, owner, rank)")
    check_sampler(sampler)
    require_row_independence(sampler, "cooperative sampling")
    if not hasattr(sampler, "draw_owned"):
        owned.check_reads(sampler)
    check_seed(step, "step")
    seeds = check_ids("seeds", seeds, owned.graph.num_nodes, unique=True).to(owned.graph.device)
    mine = seeds[owned.owner[seeds] == owned.rank]
    return _sample_layers(owned, mine, sampler, step, owned.own_edges(exclude_edges))


def _sample_layers(
    owned: OwnedGraph, nodes: Tensor, sampler: Sampler, step: int, exclude_edges: Tensor | None
) -> AllToAll[MiniBatch]:
    blocks: list[Block] = []
    exchanges: list[Exchange] = []
    for layer in reversed(range(sampler.num_layers)):
        drawn = yield from _draw(owned, nodes, sampler, layer=layer, step=step, exclude_edges=exclude_edges)
        check_drawn(drawn, len(nodes))
        extra = edge_values(owned.graph, drawn, getattr(sampler, "edge_ids", False))
        layer_ids = _label(owned, nodes, drawn, overwrite=getattr(sampler, "sources_are_new", False))
        counts = tuple(layer_ids.split.counts.tolist())
        asked = yield list(layer_ids.split.halo.split(counts))
        sources, exchange = _answer(owned, torch.cat([nodes, layer_ids.split.own]), asked, layer_ids.split.halo, counts)
        num_src = len(sources) + len(layer_ids.split.halo)
        local = local_ids(layer_ids.labels, len(nodes), layer_ids.split, len(sources))
        blocks.insert(0, Block(drawn.indptr, local, num_src, len(nodes), **extra))
        exchanges.insert(0, exchange)
        nodes = sources
    return MiniBatch(copy_ids(nodes), tuple(blocks), exchanges=tuple(exchanges), step=step)


def _draw(owned: OwnedGraph, nodes: Tensor, sampler: Sampler, **options: Any) -> AllToAll[Drawn]:
    """Draw a layer's rows; samplers that read rows of other nodes do so through their owners."""
    if owned.num_ranks > 1 and hasattr(sampler, "draw_owned"):
        return (yield from sampler.draw_owned(owned, nodes, **options))
    return owned.draw(sampler, nodes, **options)


class _LayerIds(NamedTuple):
    """The sources of a rank's rows: numbers in order of first appearance, and the new ones among them by owner."""

    labels: Tensor
    split: SplitIds


def _label(owned: OwnedGraph, nodes: Tensor, drawn: Drawn, *, overwrite: bool) -> _LayerIds:
    with relabeler(owned.graph.num_nodes, nodes) as labels:
        local = labels(drawn.sources, overwrite=overwrite)
        new = labels.node_ids[len(nodes) :]
    return _LayerIds(local, split_ids(new, owned))


def _answer(
    owned: OwnedGraph, nodes: Tensor, asked: Sequence[Tensor], halo: Tensor, counts: tuple[int, ...]
) -> tuple[Tensor, Exchange]:
    """Add the nodes that other ranks ask for to the rank's own, and look up which rows each of them gets."""
    if len(asked) != owned.num_ranks:
        raise ValueError(f"the exchange returned {len(asked)} vectors; it must return one per rank, {owned.num_ranks}")
    for rank, ids in enumerate(asked):
        check_vector(f"the ids that rank {rank} asks for", ids, None, (torch.int64,))
    wanted = owned.check_owned("the ids that other ranks ask for", torch.cat(list(asked)).to(nodes.device))
    send = wanted
    if len(wanted):
        with relabeler(owned.graph.num_nodes, nodes) as labels:
            send, nodes = labels(wanted).long(), labels.node_ids
    return nodes, Exchange(send, tuple(len(ids) for ids in asked), counts, halo)


def cooperative_batches(
    graph: Graph,
    seeds: Tensor,
    *,
    sampler: Sampler,
    owner: Tensor,
    num_ranks: int,
    step: int = 0,
    exclude_edges: Tensor | None = None,
) -> list[MiniBatch]:
    """Sample a global batch as cooperating ranks would, all of them in lockstep in this process.

    Args:
        graph: the whole graph.
        seeds: int64 or int32 node ids, each once: the global batch.
        sampler: draws every row independently of the others.
        owner: int64 or int32 [num_nodes], the rank that owns each node.
        num_ranks: number of ranks.
        step: number of the batch.
        exclude_edges: int64 or int32, raw-graph edge ids that must not be drawn.

    Returns:
        One batch per rank, as `sample_owned` returns it.

    Raises:
        ValueError: as `sample_owned` and `OwnedGraph.of`.
        IndexError: a seed or an edge to exclude is not in the graph.

    >>> import torch, workbench as wb
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> owner, sampler = torch.tensor([0, 1, 0, 1]), wb.FullNeighborSampler(2)
    >>> [mb.node_ids.tolist() for mb in wb.cooperative_batches(
    ...     path, torch.tensor([3]), sampler=sampler, owner=owner, num_ranks=2)]
    [[2], [3, 1]]
    """
    parts = _parts(graph, owner, num_ranks)
    if exclude_edges is not None:
        graph.edge_positions(exclude_edges)
    return run_in_lockstep(
        [sample_owned(part, seeds, sampler=sampler, step=step, exclude_edges=exclude_edges) for part in parts]
    )


def independent_batches(
    graph: Graph, seeds: Tensor, *, sampler: Sampler, owner: Tensor, num_ranks: int, step: int = 0
) -> list[MiniBatch]:
    """Sample a global batch as independent ranks do: each the whole neighbourhood of the seeds that it owns.

    Args:
        graph: the whole graph.
        seeds: int64 or int32 node ids, each once: the global batch.
        sampler: any sampler.
        owner: int64 or int32 [num_nodes], the rank that owns each node.
        num_ranks: number of ranks.
        step: number of the batch.

    Returns:
        One batch per rank, without exchanges.

    Raises:
        ValueError: duplicate seeds, or `owner` has another length or an owner out of range.
        IndexError: a seed out of range.

    Source: Cooperative Minibatching, section 2.3.
    """
    parts = _parts(graph, owner, num_ranks)
    check_sampler(sampler)
    seeds = check_ids("seeds", seeds, graph.num_nodes, unique=True).to(graph.device)
    owners = parts[0].owner[seeds]
    return [sampler.sample(graph, seeds[owners == part.rank], step=step) for part in parts]


def _parts(graph: Graph, owner: Tensor, num_ranks: int) -> list[OwnedGraph]:
    """The ranks' views of one graph, which they share: `OwnedGraph.draw` checks that each draws its own rows alone."""
    check_graph(graph)
    check_at_least("num_ranks", num_ranks, 1)
    owner = checked_owner(owner, graph, num_ranks)
    return [OwnedGraph(graph, owner, rank, num_ranks) for rank in range(num_ranks)]
