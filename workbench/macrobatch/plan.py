"""`macrobatch_bytes`: the cost model of macrobatches, over counts of any window of mini-batches.

With M mini-batches, macrobatches of B, T_i bytes of topology and f_i input nodes of mini-batch i, A_k the union of the
input nodes of macrobatch k, S bytes per row of features and C bytes that every relay costs:

    one by one (2)     Σ T_i + M C   + S Σ_i |f_i|
    macrobatches (3)   Σ T_i + M C/B + S Σ_k |A_k|

With aggregates in place of the input layer, T_i lacks its edges, and two rows of each node of A_k are fetched, of the
nodes that the layer would expand (equation 5; `aggregate_cost` compares it with equation 4 batch by batch).

Hoang et al.: "BatchGNN: Efficient CPU-based distributed GNN training on very large graphs", appendices A and C.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import (
    ID_DTYPES,
    INT64_MAX,
    CapacityError,
    check_at_least,
    check_bytes,
    check_ids,
    check_type,
    check_vector,
)
from workbench.core.exchange import ID_BYTES, refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.core.shared_storage import total_bytes
from workbench.core.trace import AccessTrace
from workbench.core.units import format_bytes
from workbench.distributed.group import Group, get_world_size
from workbench.features.cache.simulate import simulate_cache
from workbench.kernels.gather import gather_rows
from workbench.kernels.relabel import IdIndex


class FetchBytes(NamedTuple):
    """Modelled bytes that a rank receives from others.

    Args:
        topology: Σ T_i: ids of the nodes that others expand for it, the lengths of their rows, and their edges.
        relays: bytes that relays cost whatever they fetch.
        features: rows of features, and of aggregates.
    """

    topology: float
    relays: float
    features: float

    @property
    def total(self) -> float:
        return sum(self)


@dataclass(frozen=True, eq=False)
class WindowUnions:
    """Distinct ids of every window of consecutive batches.

    An id that batch i reads counts in the window [first, last) if no batch of first, …, i − 1 has read it, that is if
    the last batch before i that did precedes `first`. A histogram of these last batches answers all windows.

    Args:
        sums: int64 [num_batches + 1, num_batches + 1]; `sums[i, first]` is the number of reads by the batches before i
            of ids whose last reader before precedes `first`.
    """

    sums: np.ndarray

    @staticmethod
    def of(batches: Iterable[Tensor]) -> "WindowUnions":
        """Count the ids of batches.

        Args:
            batches: int64 [any] per batch, each id once per batch, non-negative.
        """
        ids = [one.cpu().numpy() for one in batches]
        last_reader = np.zeros(max((int(one.max()) + 1 for one in ids if len(one)), default=0), np.int64)  # 0: none
        counts = np.zeros((len(ids) + 1, len(ids) + 1), np.int64)
        for number, one in enumerate(ids, 1):
            counts[number] = np.bincount(last_reader[one], minlength=len(ids) + 1)
            last_reader[one] = number
        return WindowUnions(counts.cumsum(0).cumsum(1))

    def __len__(self) -> int:
        """Number of batches."""
        return len(self.sums) - 1

    def counts(self, size: int, *, num_batches: int | None = None) -> np.ndarray:
        """Return the distinct ids of each window of `size` batches, the last of which may have fewer: int64 [windows].

        Args:
            size: batches per window, at least 1.
            num_batches: batches in all, of which those after the last one read nothing; None: those there are.
        """
        first = np.arange(0, len(self) if num_batches is None else num_batches, size)
        last = np.minimum(first + size, len(self))
        first = np.minimum(first, len(self))
        return self.sums[last, first] - self.sums[first, first]


@dataclass(frozen=True, eq=False)
class ReadCounts:
    """What the batches of one rank read, with or without aggregates.

    Args:
        rows: distinct nodes of any window, whose rows are in memory together.
        fetched: those of them whose rows are not on this rank: those of other ranks, or all if it is the only one.
        stores: rows per node: 1, or 2 with aggregates.
        topology_bytes: int64 [num_batches], what other ranks send and are asked for while a batch is sampled.
        batch_bytes: int64 [num_batches], bytes of the batch in memory.
    """

    rows: WindowUnions
    fetched: WindowUnions
    stores: int
    topology_bytes: np.ndarray
    batch_bytes: np.ndarray


def macrobatch_bytes(
    counts: ReadCounts, *, size: int, row_bytes: int, group_size: int | None = None, relay_bytes: float = 0.0
) -> FetchBytes:
    """Model the bytes that a rank fetches for its mini-batches in macrobatches; of size 1, one by one.

    Args:
        counts: what they read: `sampled` or `aggregated` of `count_macrobatches(…)`.
        size: B, mini-batches per macrobatch; 1 gives equation 2, larger ones equation 3.
        row_bytes: S, bytes of a row of features.
        group_size: F, mini-batches whose rows are fetched at once: a divisor of B, or any number if B is all
            mini-batches; None for B.
        relay_bytes: C, bytes that sampling and fetching a macrobatch costs whatever it contains.

    Raises:
        ValueError: a size out of range, or groups that do not end with their macrobatch.

    Source: BatchGNN, equations 2, 3 and 5.

    >>> import torch, workbench as wb
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> sampler, owner = wb.FullNeighborSampler(1), torch.tensor([0, 1, 1, 0])
    >>> batches = [sampler.sample(path, torch.tensor([seed])) for seed in (2, 3)]
    >>> counts = wb.macrobatch.count_macrobatches(batches, owner=owner, rank=0).sampled
    >>> [wb.macrobatch.macrobatch_bytes(counts, size=size, row_bytes=512).features for size in (1, 2)]
    [1536.0, 1024.0]
    """
    check_type("counts", counts, ReadCounts, "pass .sampled or .aggregated of count_macrobatches(batches, …)")
    check_at_least("size", size, 1)
    check_at_least("row_bytes", row_bytes, 0)
    group_size = size if group_size is None else group_size
    check_at_least("group_size", group_size, 1, most=size)
    if size % group_size and size < len(counts.fetched):
        raise ValueError(
            f"group_size is {group_size} for macrobatches of {size}; it must divide it, so that groups end with them"
        )
    if not relay_bytes >= 0:
        raise ValueError(f"relay_bytes is {relay_bytes}; it must be at least 0")
    rows = counts.stores * int(counts.fetched.counts(group_size).sum())
    relays = -(-len(counts.fetched) // size)
    return FetchBytes(float(counts.topology_bytes.sum()), float(relay_bytes * relays), float(row_bytes * rows))


_LENGTH_BYTES = 4  # of a row of another rank

_Batches = Iterable[MiniBatch | tuple[int, MiniBatch]]


class InputHop(NamedTuple):
    """The last hop of a sampled batch.

    Args:
        expanded: |V|, nodes whose neighbours it samples: the destinations of the first block.
        new: |N(V)|, sources that are not among them.
        edges: sampled edges.
    """

    expanded: int
    new: int
    edges: int

    @staticmethod
    def of(mb: MiniBatch) -> "InputHop":
        """Count the last hop of a batch.

        Raises:
            ValueError: the batch has exchanges or no blocks.
        """
        refuse_halo(mb.exchanges, "counted")
        if not mb.blocks:
            raise ValueError("the batch has no block of an input layer; sample all layers of the model to count them")
        first = mb.blocks[0]
        return InputHop(first.num_dst, first.num_src - first.num_dst, first.num_edges)

    def sampled_bytes(self, *, row_bytes: int, node_bytes: int = 8, edge_bytes: int = 8) -> int:
        """Bytes of a sampled input layer: |V|·S + |N(V)|·S + T_v + T_n + T_e.

        Args:
            row_bytes: S, bytes of a row of features.
            node_bytes: bytes of topology per node.
            edge_bytes: bytes of topology per edge.

        Source: BatchGNN, equation 4.
        """
        return (self.expanded + self.new) * (row_bytes + node_bytes) + self.edges * edge_bytes

    def aggregated_bytes(self, *, row_bytes: int, node_bytes: int = 8) -> int:
        """Bytes of an input layer whose aggregates are precomputed: 2·|V|·S + T_v.

        Args:
            row_bytes: S, bytes of a row of features, and of an aggregate.
            node_bytes: bytes of topology per node.

        Source: BatchGNN, equation 5.
        """
        return self.expanded * (2 * row_bytes + node_bytes)

    def aggregates_pay(self, *, row_bytes: int, node_bytes: int = 8, edge_bytes: int = 8) -> bool:
        """Return whether aggregates take fewer bytes: |N(V)|·S + T_n + T_e > |V|·S."""
        sampled = self.sampled_bytes(row_bytes=row_bytes, node_bytes=node_bytes, edge_bytes=edge_bytes)
        return sampled > self.aggregated_bytes(row_bytes=row_bytes, node_bytes=node_bytes)


@dataclass(frozen=True, eq=False)
class MacrobatchCounts:
    """What one rank's batches read if all layers are sampled, and if aggregates replace the input layer.

    Args:
        sampled: with all layers.
        aggregated: without the input layer; two rows per node.
        input_hops: the last hop of each batch, of which BatchGNN's equations 4 and 5 speak.
        is_remote: other ranks own nodes, so that ids cross ranks too.
    """

    sampled: ReadCounts
    aggregated: ReadCounts
    input_hops: tuple[InputHop, ...]
    is_remote: bool

    def __len__(self) -> int:
        """Number of batches."""
        return len(self.input_hops)


def count_macrobatches(
    batches: _Batches, *, owner: Tensor | None = None, rank: int = 0, source_bytes: int = 4
) -> MacrobatchCounts:
    """Count what macrobatches of some batches, of any size, would move and hold: the input of `plan_macrobatch`.

    Bytes are those that `Traffic` counts when a macrobatch is sampled in relays and its rows are staged: per node of
    another rank 8 bytes when its row is asked for, 8 when it is expanded, and 4 and those of the edges in the answer.
    Headers of messages, which do not depend on the batches' contents, are left out.

    Args:
        batches: consecutive batches of this rank, sampled with all layers, or pairs (step, batch); an epoch of
            `workbench.batches`, say. One of them is in memory at a time, and all their input ids.
        owner: integer [num_nodes], the rank that owns each node; None: this process samples alone and fetches all rows
            from its store.
        rank: this rank.
        source_bytes: bytes per sampled edge in an answer, besides its weight, type and id: 4, or 8 for graphs of 2³¹
            nodes or more.

    Raises:
        TypeError: something else than batches, or `owner` has another dtype.
        ValueError: a batch with exchanges or without blocks.
        IndexError: a node without an owner.
    """
    check_at_least("rank", rank, 0)
    check_vector("owner", owner, None, (*ID_DTYPES, torch.int16, torch.int8))
    hops, found = [], []
    for item in batches:
        mb = item[1] if isinstance(item, tuple) and len(item) == 2 else item
        check_type(
            "an item of batches", mb, MiniBatch, "pass batches or pairs (step, batch), as wb.batches yields them"
        )
        hops.append(InputHop.of(mb))
        node_ids = check_ids("node_ids", mb.node_ids, INT64_MAX if owner is None else len(owner)).cpu()
        is_foreign = None if owner is None else owner[node_ids.to(owner.device)].cpu() != rank
        found.append(_Batch(node_ids.clone(), is_foreign, hops[-1].expanded, *_bytes(mb, is_foreign, source_bytes)))
    sampled, aggregated = (_read_counts(found, owner is not None, input_layer=kept) for kept in (True, False))
    return MacrobatchCounts(sampled, aggregated, tuple(hops), owner is not None)


@dataclass(frozen=True, eq=False)
class _Batch:
    """Ids of a batch, which of them are foreign, destinations of the first block, and bytes by layer."""

    node_ids: Tensor
    is_foreign: Tensor | None
    expanded: int
    topology_bytes: list[int]
    block_bytes: list[int]


def _bytes(mb: MiniBatch, is_foreign: Tensor | None, source_bytes: int) -> tuple[list[int], list[int]]:
    """Bytes that cross ranks, and bytes in memory, for each block."""
    topology = [0 if is_foreign is None else _answer_bytes(b, is_foreign, source_bytes) for b in mb.blocks]
    return topology, [total_bytes(block._tensors().values()) for block in mb.blocks]


def _answer_bytes(block: Block, is_foreign: Tensor, source_bytes: int) -> int:
    """Bytes of the requests and of the answers for the destinations of other ranks."""
    columns = (block.edge_ids, block.edge_weight, block.edge_type)
    edge_bytes = source_bytes + sum(values.element_size() for values in columns if values is not None)
    foreign = is_foreign[: block.num_dst]
    edges = int(block.in_degrees().cpu()[foreign].sum())
    return int(foreign.sum()) * (ID_BYTES + _LENGTH_BYTES) + edges * edge_bytes


def _read_counts(batches: Sequence[_Batch], is_remote: bool, *, input_layer: bool) -> ReadCounts:
    ids = [batch.node_ids if input_layer else batch.node_ids[: batch.expanded] for batch in batches]
    foreign = [one[b.is_foreign[: len(one)]] for one, b in zip(ids, batches, strict=True) if b.is_foreign is not None]
    rows, first = WindowUnions.of(ids), 0 if input_layer else 1
    fetched = WindowUnions.of(foreign) if is_remote else rows
    in_memory = [8 * len(one) + sum(batch.block_bytes[first:]) for one, batch in zip(ids, batches, strict=True)]
    topology = [sum(batch.topology_bytes[first:]) for batch in batches]
    return ReadCounts(
        rows, fetched, 1 if input_layer else 2, np.array(topology, np.int64), np.array(in_memory, np.int64)
    )


@dataclass(frozen=True, kw_only=True)
class MacrobatchPlan:
    """The sizes of macrobatches for a whole run, the same on all ranks, and what they move on the counted batches.

    Args:
        size: B, batches that are sampled together.
        group_size: F, batches whose rows are fetched together; divides B, or B is all batches.
        use_aggregates: the first layer reads precomputed aggregates; sample with `WithoutInputLayer`, and pass
            `AggregatedRows`. It changes what is trained, so it holds for the whole run.
        moved_bytes: bytes of rows and topology that the counted batches of all ranks move.
        fetched_rows: rows among them.
        held_bytes: bytes that the rank with the largest macrobatch holds: batches and rows.
        unplanned_bytes: bytes that the same batches move one by one, with all layers sampled.
    """

    size: int
    group_size: int
    use_aggregates: bool
    moved_bytes: int
    fetched_rows: int
    held_bytes: int
    unplanned_bytes: int

    @property
    def choice(self) -> Mapping[str, Any]:
        return {"size": self.size, "group_size": self.group_size, "use_aggregates": self.use_aggregates}

    @property
    def predicted(self) -> Mapping[str, float]:
        found = {"peak_bytes": self.held_bytes, "moved_bytes": self.moved_bytes, "fetched_rows": self.fetched_rows}
        return {**found, "unplanned_bytes": self.unplanned_bytes}

    @property
    def error(self) -> float:
        """0: counted, on the batches that were passed."""
        return 0.0

    def code(self) -> str:
        """Lines that train on `graph` and `ids` with rows of the store `x`; `aggregated` if aggregates are used."""
        sampler = "wb.macrobatch.WithoutInputLayer(sampler)" if self.use_aggregates else "sampler"
        store = "wb.training.AggregatedRows(x, aggregated)" if self.use_aggregates else "x"
        return (
            f"sampling, store = {sampler}, {store}\n"
            "loader = wb.macrobatch.batches(\n"
            "    graph, ids, sampler=sampling, store=store, batch_size=batch_size,\n"
            f"    size={self.size}, group_size={self.group_size},\n)\n"
            "for _, mb, rows in loader:\n    wb.train_step(model, mb, rows, y, loss_fn, optimizer)\n"
        )


def choose_macrobatch(
    ranks: Sequence[MacrobatchCounts],
    row_bytes: int,
    memory_bytes: int,
    *,
    aggregates: bool | None = None,
    aggregates_bytes: int = 0,
) -> MacrobatchPlan:
    """Choose the plan that moves the fewest bytes within a capacity.

    Of several, the one without aggregates, then the one with the fewest windows, then the one that holds least.

    Args:
        row_bytes: S, bytes of a row of features, and of an aggregate.
        memory_bytes: bytes of batches and rows that a rank may hold.
        aggregates: use aggregates, or do not; None: if they do not move more bytes than the batches one by one.
        aggregates_bytes: bytes that a rank's aggregates take in memory, which count as held; 0 if they are on disk.
    """
    if not any(map(len, ranks)):
        raise ValueError("no batches were counted; pass batches of an epoch, sampled with all layers of the model")
    unplanned = _Candidate.of(ranks, False, 1, row_bytes).moved_bytes
    kinds = (False, True) if aggregates is None else (aggregates,)
    found = [
        plan
        for use in kinds
        for plan in _plans(ranks, use, row_bytes, unplanned, aggregates_bytes if use else 0)
        if aggregates is not None or not use or plan.moved_bytes <= unplanned
    ]
    fitting = [plan for plan in found if plan.held_bytes <= memory_bytes]
    if not fitting:
        least = min(found, key=lambda plan: plan.held_bytes)
        raise CapacityError(
            f"memory is {memory_bytes} ({format_bytes(memory_bytes)}), but the smallest macrobatch (size "
            f"{least.size}, group_size {least.group_size}, {'with' if least.use_aggregates else 'without'} aggregates) "
            f"holds {least.held_bytes} bytes ({format_bytes(least.held_bytes)}); raise the capacity, or lower "
            "batch_size or the fanouts"
        )
    return min(fitting, key=lambda plan: (plan.moved_bytes, plan.use_aggregates, -plan.size, plan.held_bytes))


@dataclass(frozen=True)
class _Candidate:
    """Bytes and rows that a group size moves, and the bytes of each group's rows and each batch, by rank."""

    moved_bytes: int
    fetched_rows: int
    group_bytes: list[np.ndarray]
    batch_bytes: list[np.ndarray]

    @staticmethod
    def of(ranks: Sequence[MacrobatchCounts], use: bool, group_size: int, row_bytes: int) -> "_Candidate":
        total, fetched, moved = max(map(len, ranks)), 0, 0
        groups, batches = [], []
        for rank in ranks:
            reads = rank.aggregated if use else rank.sampled
            rows = reads.stores * int(reads.fetched.counts(group_size, num_batches=total).sum())
            fetched += rows
            moved += rows * (row_bytes + rank.is_remote * ID_BYTES) + int(reads.topology_bytes.sum())
            groups.append(reads.stores * row_bytes * reads.rows.counts(group_size, num_batches=total))
            batches.append(np.pad(reads.batch_bytes, (0, total - len(reads.batch_bytes))))  # empty ones join the others
        return _Candidate(moved, fetched, groups, batches)

    def held_bytes(self, size: int, group_size: int) -> int:
        """The largest window of any rank: its batches, the rows of a group, and those of the group before.

        A loop has the latter in its variable while the others are fetched; before the first group are the last epoch's.
        """
        groups_per_window, held = -(-size // group_size), 0
        for groups, batches in zip(self.group_bytes, self.batch_bytes, strict=True):
            two = groups + np.roll(groups, 1)
            largest = np.maximum.reduceat(two, np.arange(0, len(groups), groups_per_window))
            held = max(held, int((largest + np.add.reduceat(batches, np.arange(0, len(batches), size))).max()))
        return held


def _plans(
    ranks: Sequence[MacrobatchCounts], use: bool, row_bytes: int, unplanned: int, extra: int
) -> Iterator[MacrobatchPlan]:
    """All group sizes, each with all window sizes that are multiples of it, or that are all batches."""
    total = max(map(len, ranks))
    for group_size in range(1, total + 1):
        candidate = _Candidate.of(ranks, use, group_size, row_bytes)
        for size in (*range(group_size, total, group_size), total):
            yield MacrobatchPlan(
                size=size,
                group_size=group_size,
                use_aggregates=use,
                moved_bytes=candidate.moved_bytes,
                fetched_rows=candidate.fetched_rows,
                held_bytes=candidate.held_bytes(size, group_size) + extra,
                unplanned_bytes=unplanned,
            )


T = TypeVar("T")

Counted = MacrobatchCounts | Sequence[MacrobatchCounts] | Iterable[MiniBatch | tuple[int, MiniBatch]]


def plan_macrobatch(
    counts: Counted,
    *,
    row_bytes: int,
    memory: int | str,
    aggregates: bool | None = None,
    aggregates_bytes: int | str = 0,
    group: Group = None,
) -> MacrobatchPlan:
    """Choose B, F and whether to use precomputed aggregates, before a run, from batches sampled for the purpose.

        plan = wb.macrobatch.plan_macrobatch(wb.batches(…).epoch(0), row_bytes=x[0].nbytes, memory="2GiB")
        sampler = wb.macrobatch.WithoutInputLayer(sampler) if plan.use_aggregates else sampler
        rows = wb.training.AggregatedRows(x, aggregated) if plan.use_aggregates else x
        loader = wb.macrobatch.batches(…, sampler=sampler, store=rows, size=plan.size, group_size=plan.group_size)

    The plan moves the fewest bytes of all that fit, and on the counted batches never more than the batches one by one.
    Aggregates replace the input layer if that moves fewer bytes; they change what is trained (full instead of sampled
    neighbourhoods), so the decision is made once, and never within a run. Over ranks the call is collective: the counts
    of all ranks are gathered, bytes added up, and every rank gets the same plan.

    Held bytes are the sampled batches of a macrobatch, the staged rows of a group, and those of the group before, which
    a loop has in its variable until these are there; without the index of the staged ids and the copies that exist
    while rows arrive.

    Args:
        counts: this rank's `workbench.macrobatch.count_macrobatches`; or, in one process, a list of those of all ranks;
            or batches of a process that samples alone, with all layers.
        row_bytes: bytes of a row of features, and of an aggregate.
        memory: bytes, or text such as "2GiB", that each rank may hold.
        aggregates: True or False to decide otherwise than by bytes; None: by bytes.
        aggregates_bytes: bytes that this rank's aggregates take in memory, if they are used; 0 if they are on disk.
        group: the ranks; None for all.

    Returns:
        The plan, frozen; `moved_bytes`, `fetched_rows` and `held_bytes` are those of the counted batches.

    Raises:
        TypeError: counts of another type.
        ValueError: no batches, or one that is not complete, or a number out of range.
        CapacityError: not even one batch at a time fits; the message says how many bytes it holds.

    Source: Hoang et al., "BatchGNN" (2023), equations 2 to 5; B and F of its figure 1.
    """
    check_at_least("row_bytes", row_bytes, 1)
    capacity = check_bytes("memory", memory)
    extra = check_bytes("aggregates_bytes", aggregates_bytes, 0)
    if isinstance(counts, Sequence) and len(counts) and isinstance(counts[0], MacrobatchCounts):
        ranks: Any = counts
        return choose_macrobatch(ranks, row_bytes, capacity, aggregates=aggregates, aggregates_bytes=extra)
    own = counts if isinstance(counts, MacrobatchCounts) else _counted(counts, group)
    found = _gathered((own, row_bytes, capacity, aggregates, extra), group)
    of_ranks, rows, capacities, choices, extras = zip(*found, strict=True)
    if len({*rows}) > 1 or len({*choices}) > 1:
        raise ValueError(f"ranks passed row_bytes {[*rows]} and aggregates {[*choices]}; pass the same on all of them")
    chosen = {"aggregates": aggregates, "aggregates_bytes": max(extras)}
    return choose_macrobatch(of_ranks, row_bytes, min(capacities), **chosen)


def _counted(batches: Any, group: Group) -> MacrobatchCounts:
    check_type("counts", batches, Iterable, "pass batches, or what workbench.macrobatch.count_macrobatches returns")
    if get_world_size(group) > 1:
        raise TypeError(
            "counts are batches, whose rows and topology belong to several ranks; pass "
            "workbench.macrobatch.count_macrobatches(batches, owner=owner, rank=rank)"
        )
    return count_macrobatches(batches)


def _gathered(value: T, group: Group) -> list[T]:
    """The values of all ranks, in order; collective."""
    size = get_world_size(group)
    if size == 1:
        return [value]
    found: list[Any] = [None] * size
    dist.all_gather_object(found, value, group=group)
    return found


def remote_rows(batches: Iterable[MiniBatch], owner: Tensor, rank: int, *, group_size: int = 1) -> int:
    """Count the feature rows that a rank fetches from others, if those of several mini-batches are fetched at once.

    Args:
        batches: the rank's mini-batches of an epoch, in order; a group at a time is in memory if they are generated.
        owner: int64 or int32 [num_nodes], the rank that owns each node.
        rank: number of the rank.
        group_size: F, mini-batches whose rows are fetched together, at least 1.

    Returns:
        Σ |A_k| of equation 3, restricted to rows of other ranks; with `group_size` 1, Σ |f_i| of equation 2.

    Raises:
        ValueError: `group_size` below 1, or a batch with exchanges, whose rows are not fetched in groups.
        IndexError: a node that no rank owns.

    Source: BatchGNN, appendix A, equations 2 and 3.

    >>> import torch, workbench as wb
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> batches = [wb.FullNeighborSampler(1).sample(path, torch.tensor([seed])) for seed in (2, 3)]
    >>> [remote_rows(batches, torch.tensor([0, 0, 1, 1]), 0, group_size=size) for size in (1, 2)]
    [3, 2]
    """
    check_at_least("group_size", group_size, 1)
    check_vector("owner", owner, None, ID_DTYPES)
    total, rest = 0, iter(batches)
    while group := list(islice(rest, group_size)):
        ids = []
        for mb in group:
            refuse_halo(mb.exchanges, "counted")
            ids.append(check_ids("node_ids", mb.node_ids, len(owner)))
        total += int((gather_rows(owner, IdIndex(ids, len(owner)).ids) != rank).sum())
    return total


@dataclass(frozen=True)
class WindowFetches:
    """Rows that the batches of a window fetch, by how they are kept in memory.

    Args:
        separate_rows: batch by batch, nothing kept.
        grouped_rows: as macrobatches: each group's distinct rows once, nothing kept from group to group.
        lru_rows: through an LRU cache with room for `capacity_rows`.
        belady_rows: through a cache of that size that knows the window: no cache that starts empty fetches fewer.
        capacity_rows: rows of the largest group, or as given.
    """

    separate_rows: int
    grouped_rows: int
    lru_rows: int
    belady_rows: int
    capacity_rows: int


def window_fetches(
    window: Iterable[Tensor | MiniBatch | tuple[int, MiniBatch]],
    *,
    group_size: int,
    capacity_rows: int | None = None,
) -> WindowFetches:
    """Count the rows that a window of batches fetches as macrobatches, and with caches that hold as many rows.

    A window that is sampled at once is a known trace, of which Belady's rule gives the lower bound.

    Args:
        window: the batches, pairs (step, batch), or the ids that each reads, each once.
        group_size: F, batches whose rows are fetched and held together.
        capacity_rows: rows of the caches, at least 1; None: those of the largest group.

    Raises:
        TypeError: `window` contains something else.
        ValueError: a number below 1.

    Source: Park et al., "Ginex" (VLDB 2022): superbatches and provably optimal caching; BatchGNN, section 3.
    """
    check_at_least("group_size", group_size, 1)
    reads = [_ids(item) for item in window]
    trace = AccessTrace.of(reads)
    groups = WindowUnions.of(iter(trace)).counts(group_size)
    capacity = max(1, int(max(groups, default=0))) if capacity_rows is None else capacity_rows
    check_at_least("capacity_rows", capacity, 1)
    misses = {
        policy: simulate_cache(trace, capacity, policy=policy, semantics="batch").num_misses
        for policy in ("lru", "belady-bypass")
    }
    return WindowFetches(len(trace.ids), int(groups.sum()), misses["lru"], misses["belady-bypass"], capacity)


def _ids(item: Any) -> Tensor:
    item = item[1] if isinstance(item, tuple) and len(item) == 2 else item
    if isinstance(item, MiniBatch):
        return item.node_ids
    check_type("an item of window", item, Tensor, "pass batches, pairs (step, batch), or the ids that each batch reads")
    return item
