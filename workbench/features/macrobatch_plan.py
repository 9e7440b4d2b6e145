"""Chooses the sizes of macrobatches, and whether aggregates replace the input layer, from counts before the run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.core.errors import CapacityError
from workbench.core.units import format_bytes
from workbench.features.macrobatch_counts import ID_BYTES, MacrobatchCounts, ReadCounts


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
