"""Chooses the sizes of macrobatches, and whether aggregates replace the input layer, from counts before the run."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch.distributed as dist

from workbench.core.errors import CapacityError, check_at_least, check_bytes, check_type
from workbench.core.minibatch import MiniBatch
from workbench.core.units import format_bytes
from workbench.distributed.group import Group, get_world_size
from workbench.macrobatch.counts import ID_BYTES, MacrobatchCounts, ReadCounts, count_macrobatches


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


def choose_macrobatch(
    ranks: Sequence[MacrobatchCounts],
    row_bytes: int,
    capacity_bytes: int,
    *,
    aggregates: bool | None = None,
    aggregates_bytes: int = 0,
) -> MacrobatchPlan:
    """Choose the plan that moves the fewest bytes within a capacity.

    Of several, the one without aggregates, then the one with the fewest windows, then the one that holds least.

    Args:
        ranks: the counts of each rank.
        row_bytes: S, bytes of a row of features, and of an aggregate.
        capacity_bytes: bytes of batches and rows that a rank may hold.
        aggregates: use aggregates, or do not; None: if they do not move more bytes than the batches one by one.
        aggregates_bytes: bytes that a rank's aggregates take in memory, which count as held; 0 if they are on disk.

    Raises:
        ValueError: no rank has a batch.
        CapacityError: nothing fits; the message says what would.
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
    fitting = [plan for plan in found if plan.held_bytes <= capacity_bytes]
    if not fitting:
        least = min(found, key=lambda plan: plan.held_bytes)
        raise CapacityError(
            f"capacity_bytes is {capacity_bytes} ({format_bytes(capacity_bytes)}), but the smallest macrobatch (size "
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
            batches.append(_padded(reads, total))
        return _Candidate(moved, fetched, groups, batches)

    def held_bytes(self, size: int, group_size: int) -> int:
        """The largest window of any rank: its batches, and the rows of its largest group."""
        groups_per_window, held = -(-size // group_size), 0
        for groups, batches in zip(self.group_bytes, self.batch_bytes, strict=True):
            largest = np.maximum.reduceat(groups, np.arange(0, len(groups), groups_per_window))
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


def _padded(reads: ReadCounts, total: int) -> np.ndarray:
    """Bytes of each batch, and of the empty ones by which a rank joins the others."""
    return np.pad(reads.batch_bytes, (0, total - len(reads.batch_bytes)))


T = TypeVar("T")

Counted = MacrobatchCounts | Sequence[MacrobatchCounts] | Iterable[MiniBatch | tuple[int, MiniBatch]]


def plan_macrobatch(
    counts: Counted,
    *,
    row_bytes: int,
    capacity_bytes: int | str,
    aggregates: bool | None = None,
    aggregates_bytes: int | str = 0,
    group: Group = None,
) -> MacrobatchPlan:
    """Choose B, F and whether to use precomputed aggregates, before a run, from batches sampled for the purpose.

        plan = wb.plan_macrobatch(wb.batches(…).epoch(0), row_bytes=x[0].nbytes, capacity_bytes="2GiB")
        sampler = wb.WithoutInputLayer(sampler) if plan.use_aggregates else sampler
        rows = wb.AggregatedRows(x, aggregated) if plan.use_aggregates else x
        loader = wb.macrobatches(…, sampler=sampler, store=rows, size=plan.size, group_size=plan.group_size)

    The plan moves the fewest bytes of all that fit, and on the counted batches never more than the batches one by one.
    Aggregates replace the input layer if that moves fewer bytes; they change what is trained (full instead of sampled
    neighbourhoods), so the decision is made once, and never within a run. Over ranks the call is collective: the counts
    of all ranks are gathered, bytes added up, and every rank gets the same plan.

    Held bytes are the sampled batches of a macrobatch and the staged rows of a group, without the index of the staged
    ids and the copies that exist while rows arrive.

    Args:
        counts: this rank's `workbench.count_macrobatches`; or, in one process, a list of those of all ranks; or batches
            of a process that samples alone, with all layers.
        row_bytes: bytes of a row of features, and of an aggregate.
        capacity_bytes: bytes, or text such as "2GiB", that each rank may hold.
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
    capacity = check_bytes("capacity_bytes", capacity_bytes)
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
    check_type("counts", batches, Iterable, "pass batches, or what workbench.count_macrobatches returns")
    if get_world_size(group) > 1:
        raise TypeError(
            "counts are batches, whose rows and topology belong to several ranks; pass workbench.count_macrobatches("
            "batches, owner=owner, rank=rank)"
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
