"""Cooperative sampling: all ranks sample one global batch together, each the in-edges of the nodes that it owns.

Balın, LaSalle, Çatalyürek: "Cooperative minibatching in graph neural networks", algorithm 1. S^0 are the seeds. In
every layer rank p draws the rows of its nodes S_p^l, asks the owners of the sources S̃_p^{l+1} for those of other
ranks, and continues with S_p^{l+1}: the nodes that it owns of all that it or another rank drew.

Communication is the caller's: `sample_owned` yields the ids for every rank and is sent what every rank yielded for it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import (
    check_at_least,
    check_id_vector,
    check_ids,
    check_seed,
    check_type,
    check_vector,
    find_out_of_range,
)
from workbench.core.exchange import AllToAll, Exchange, refuse_halo, run_in_lockstep
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.kernels.jit import compiled
from workbench.kernels.relabel import SplitIds, owned_relabeler, renumber
from workbench.kernels.threads import get_num_threads, run_tasks
from workbench.sampling.owned_graph import OwnedGraph, checked_owner
from workbench.sampling.sampler import (
    Drawn,
    Sampler,
    check_drawn,
    check_graph,
    check_sampler,
    copy_ids,
    require_row_independence,
    sources_are_new,
)


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
        sampler: draws every row independently of the others, or defines `draw_owned`, as LABOR-i and LABOR-* do.
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
    seeds = _checked_seeds(owned, seeds, sampler, step)
    mine = seeds[owned.owner[seeds] == owned.rank]
    return _sample_layers(owned, mine, sampler, step, owned.own_edges(exclude_edges))


def _checked_seeds(owned: OwnedGraph, seeds: Tensor, sampler: Sampler, step: int) -> Tensor:
    check_sampler(sampler)
    if not hasattr(sampler, "draw_owned"):
        require_row_independence(sampler, "cooperative sampling")
        owned.check_reads(sampler)
    check_seed(step, "step")
    return check_ids("seeds", seeds, owned.graph.num_nodes, unique=True).to(owned.graph.device)


def _sample_layers(
    owned: OwnedGraph, nodes: Tensor, sampler: Sampler, step: int, exclude_edges: Tensor | None
) -> AllToAll[MiniBatch]:
    if owned.num_ranks == 1:
        return _alone(sampler.sample(owned.graph, nodes, step=step, exclude_edges=exclude_edges))
    blocks: list[Block] = []
    exchanges: list[Exchange] = []
    for layer in reversed(range(sampler.num_layers)):
        drawn = yield from _draw(owned, nodes, sampler, layer=layer, step=step, exclude_edges=exclude_edges)
        check_drawn(drawn, len(nodes))
        extra = owned.edge_values(drawn, sampler)
        numbers, ids = _split(owned, nodes, drawn, overwrite=sources_are_new(sampler))
        counts = tuple(ids.counts.tolist())
        asked = yield list(ids.halo.split(counts))
        sources, send = _answer(owned, ids.own, asked)
        local = renumber(numbers, ids, len(sources))
        blocks.insert(0, Block(drawn.indptr, local, len(sources) + len(ids.halo), len(nodes), **extra))
        exchanges.insert(0, Exchange(send, tuple(map(len, asked)), counts, ids.halo))
        nodes = sources
    return MiniBatch(copy_ids(nodes), tuple(blocks), exchanges=tuple(exchanges), step=step)


def _alone(mb: MiniBatch) -> MiniBatch:
    """The batch of the only rank, which exchanges nothing."""
    none = mb.node_ids[:0]
    return replace(mb, exchanges=tuple(Exchange(none, (0,), (0,), none) for _ in mb.blocks))


def _draw(owned: OwnedGraph, nodes: Tensor, sampler: Sampler, **options: Any) -> AllToAll[Drawn]:
    """Draw rows of nodes that are the rank's; samplers that read rows of other nodes do so through their owners."""
    if hasattr(sampler, "draw_owned"):
        return (yield from sampler.draw_owned(owned, nodes, **options))  # pyright: ignore[reportAttributeAccessIssue]
    return sampler.draw(owned.graph, nodes, **options)


def _split(owned: OwnedGraph, nodes: Tensor, drawn: Drawn, *, overwrite: bool) -> tuple[Tensor, SplitIds]:
    """Number the sources in order of first appearance, and divide them by owner."""
    with owned_relabeler(owned.graph.num_nodes, nodes) as labels:
        numbers = labels(drawn.sources, overwrite=overwrite)
        return numbers, labels.split(len(nodes), owned.owner, owned.rank, owned.num_ranks)


def _answer(owned: OwnedGraph, own: Tensor, asked: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Add the ids that other ranks ask for to the rank's own, and return their positions too: the rows to send."""
    if len(asked) != owned.num_ranks:
        raise ValueError(f"the exchange returned {len(asked)} vectors; it must return one per rank, {owned.num_ranks}")
    for rank, ids in enumerate(asked):
        if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.dim() != 1:
            check_vector(f"the ids that rank {rank} asks for", ids, None, (torch.int64,))
    wanted = torch.cat(list(asked)).to(own.device)
    if not len(wanted):
        return own, wanted
    with owned_relabeler(owned.graph.num_nodes, own) as labels:
        if (send := labels.answer(wanted, owned.owner, owned.rank)) is None:
            owned.check_owned("the ids that other ranks ask for", wanted)
        assert send is not None
        return labels.node_ids, send


def batches(
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

    Ranks that exchange many ids draw at the same time, in several threads.

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
    >>> [mb.node_ids.tolist() for mb in wb.cooperative.batches(
    ...     path, torch.tensor([3]), sampler=sampler, owner=owner, num_ranks=2)]
    [[2], [3, 1]]
    """
    parts = _parts(graph, owner, num_ranks)
    if exclude_edges is not None:
        graph.edge_positions(exclude_edges)
    seeds = _checked_seeds(parts[0], seeds, sampler, step)
    owners = parts[0].owner[seeds]
    return run_in_lockstep(
        [_sample_layers(part, seeds[owners == part.rank], sampler, step, exclude_edges) for part in parts]
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


_WORDS = 8  # of 64 bits: a cache line

_TORCH_ITEMS = 64  # columns of the dense matrix of the torch implementation


def reach_counts(batch: MiniBatch, *, items: Tensor | None = None) -> Tensor:
    """Count for every input node the seeds whose own sample contains it.

    The sample of a seed is the seed and all that the blocks' edges lead to from it, layer by layer. If the sampler's
    rows are independent, it is the batch that sampling this seed alone gives.

    Args:
        batch: without exchanges.
        items: int64 or int32 [num_items, width], positions of seeds: count the items that have a seed that reaches the
            node, such as the pairs of link prediction with their negatives. None: every seed is an item.

    Returns:
        int64 [num_inputs].

    Raises:
        TypeError: items of another dtype.
        ValueError: the batch has exchanges, or items are not a matrix.
        IndexError: an item's position is out of range.

    Source: Cooperative Minibatching, section 3: the sets that theorems 3.1 and 3.2 count.
    """
    refuse_halo(batch.exchanges, "counted")
    if items is None:
        items = torch.arange(batch.num_seeds, device=batch.device)[:, None]
    items = _checked(items, batch.num_seeds).to(batch.device)
    if batch.device.type != "cpu":
        return reach_counts_torch(batch, items)
    groups = items.split(_WORDS * 64)
    threads = max(1, min(get_num_threads(), len(groups)))
    counts = torch.zeros(threads, batch.num_inputs, dtype=torch.int64)
    blocks = [(b.indptr.numpy(), b.indices.numpy(), b.num_dst, b.num_src) for b in reversed(batch.blocks)]

    def count(thread: int) -> None:
        sets = torch.zeros(batch.num_inputs, _WORDS, dtype=torch.int64).numpy().view(np.uint64)
        before = torch.empty(max((b.num_dst for b in batch.blocks), default=0), _WORDS, dtype=torch.int64)
        for group in groups[thread::threads]:
            _mark(group.numpy(), sets)
            for block in blocks:
                _pass_on(*block, before.numpy().view(np.uint64), sets)
            _count_and_clear(sets, counts[thread].numpy())

    run_tasks([lambda thread=thread: count(thread) for thread in range(threads)])
    return counts.sum(0)


def reach_counts_torch(batch: MiniBatch, items: Tensor) -> Tensor:
    """Count as `reach_counts` does, in plain torch for any device; the oracle of the compiled kernels.

    Args:
        batch: without exchanges.
        items: int64 [num_items, width], positions of seeds.
    """
    counts = torch.zeros(batch.num_inputs, dtype=torch.int64, device=batch.device)
    for group in items.split(_TORCH_ITEMS):
        reached = torch.zeros(batch.num_seeds, len(group), dtype=torch.int32, device=batch.device)
        reached[group, torch.arange(len(group), device=batch.device)[:, None]] = 1
        for block in reversed(batch.blocks):
            sources = reached.new_zeros(block.num_src, len(group))
            sources[: block.num_dst] = reached
            reached = sources.index_add_(0, block.indices, reached[block.destinations]).clamp_(max=1)
        counts += reached.sum(1)
    return counts


def _checked(items: Tensor, num_seeds: int) -> Tensor:
    check_id_vector("items", items.reshape(-1) if isinstance(items, Tensor) else items)
    if items.dim() != 2:
        raise ValueError(f"items have shape {tuple(items.shape)}; pass [num_items, positions per item]")
    if (bad := find_out_of_range(items, 0, num_seeds)) is not None:
        raise IndexError(f"items contain {bad}; they are positions of the batch's {num_seeds} seeds")
    return items.to(torch.int64).contiguous()


@compiled
def _mark(items, sets):
    for i in range(len(items)):
        for seed in items[i]:
            sets[seed, i >> 6] |= np.uint64(1) << np.uint64(i & 63)


@compiled
def _pass_on(indptr, indices, num_dst, num_src, before, sets):
    """Unite each destination's set, as it was before this layer, into the sets of its sources."""
    for row in range(num_dst):
        for word in range(_WORDS):
            before[row, word] = sets[row, word]
    for row in range(num_dst):
        any_bit = np.uint64(0)
        for word in range(_WORDS):
            any_bit |= before[row, word]
        if any_bit:
            for edge in range(indptr[row], indptr[row + 1]):
                for word in range(_WORDS):
                    sets[indices[edge], word] |= before[row, word]


@compiled
def _count_and_clear(sets, counts):
    for node in range(len(sets)):
        for word in range(_WORDS):
            counts[node] += _num_bits(sets[node, word])
            sets[node, word] = 0


@compiled
def _num_bits(word):
    """Number of ones of a 64-bit word: sums of pairs, of four, of eight bits, then of the bytes by a product."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))
