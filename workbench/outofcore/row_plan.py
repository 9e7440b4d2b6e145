"""`plan_rows`: which rows a known sequence of batches reads from disk, and when: Belady's rule with reads ahead.

Samples are a function of (seed, step), so they can be drawn before the rows are read, and what is read is known. Rows
are in a pool of slots. While a group of batches is trained, the next one's rows are read, so the rows of both are in
the pool; of all other rows, those whose next use is farthest in the future are evicted.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import CapacityError, check_at_least, check_fits, check_ids, check_type
from workbench.core.trace import AccessTrace
from workbench.features.cache.policies import MAX_CAPACITY, num_rows_of
from workbench.kernels.buffers import uninitialised
from workbench.kernels.jit import compiled
from workbench.kernels.lane_instructions import prefetch

_NONE = -1

_AHEAD = 24  # accesses whose rows are prefetched


@dataclass(frozen=True, eq=False, repr=False)
class RowPlan:
    """The rows that are read before each group of a trace, and where in the pool they are.

    Args:
        ids: int64 [number of rows read], group after group, each once per group.
        slots: int64 [number of rows read], the slot that each is read into.
        offsets: int64 [number of groups + 1]; group i reads `ids[offsets[i]:offsets[i + 1]]`.
        places: int32 [number of accesses], the slot of every access of the trace while its group is trained.
        peak_rows: slots occupied, at most.
    """

    ids: Tensor
    slots: Tensor
    offsets: Tensor
    places: Tensor
    peak_rows: int

    @property
    def num_rows(self) -> int:
        """Number of rows read."""
        return len(self.ids)

    def __len__(self) -> int:
        """Number of groups."""
        return len(self.offsets) - 1

    def reads(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the ids and the slots of the rows that each group reads."""
        for lo, hi in pairwise(self.offsets.tolist()):
            yield self.ids[lo:hi], self.slots[lo:hi]

    def __repr__(self) -> str:
        return f"RowPlan({len(self):,} groups read {self.num_rows:,} rows, {self.peak_rows:,} in memory)"


def plan_rows(trace: AccessTrace, capacity_rows: int, *, num_rows: int | None = None, overlap: bool = True) -> RowPlan:
    """Plan the reads of a trace with the fewest rows read.

    Args:
        trace: the ids that each group of batches reads, such as `AccessTrace.of(mb.node_ids for _, mb in batches)`.
        capacity_rows: slots of the pool, at least 1.
        num_rows: exclusive upper bound of the ids; None: the largest id of the trace + 1.
        overlap: a group's rows are read while the group before it is trained, so those of both are in the pool.

    Raises:
        CapacityError: the rows of one group, or of two with `overlap`, are more than the pool has slots.
        IndexError: an id that is not below `num_rows`.
        ValueError: a number out of range.

    Source: Belady (1966); for batches of a graph, Ginex (VLDB 2022), section 4.

    >>> trace = AccessTrace.of([torch.tensor(ids) for ids in ([0, 1], [1, 2], [3], [0])])
    >>> plan = plan_rows(trace, 3)
    >>> [ids.tolist() for ids, _ in plan.reads()]
    [[0, 1], [2], [3], [0]]
    """
    check_type("trace", trace, AccessTrace, "pass wb.AccessTrace.of(reads)")
    return RowPlanner(num_rows_of(trace) if num_rows is None else num_rows, capacity_rows, overlap=overlap).plan(trace)


class RowPlanner:
    """Plans window after window of one sequence of groups: what is in the pool remains there for the next window.

    Args:
        num_rows: exclusive upper bound of the ids.
        capacity_rows: slots of the pool; those beyond `num_rows` are not used.
        overlap: a group's rows are read while the group before it is trained.
        row_bytes: bytes of a row, so that the error of a pool that is too small names the memory that would do; None:
            it names rows.

    Raises:
        ValueError: a number out of range.
        CapacityError: 8 bytes per row, half of them only while a window is planned, and 8 per slot do not fit into
            memory.
    """

    def __init__(
        self, num_rows: int, capacity_rows: int, *, overlap: bool = True, row_bytes: int | None = None
    ) -> None:
        check_at_least("num_rows", num_rows, 0)
        check_at_least("capacity_rows", capacity_rows, 1, most=MAX_CAPACITY)
        room = min(capacity_rows, max(1, num_rows))
        check_fits(f"a plan of {room:,} of {num_rows:,} rows", 8 * num_rows + 8 * room, "lower capacity_rows")
        self._num_rows, self._overlap, self._row_bytes = num_rows, overlap, row_bytes
        self._slot_of = _filled(num_rows, _NONE)
        self._row_of = torch.empty(room, dtype=torch.int64)
        self._size = 0
        self._last = torch.empty(0, dtype=torch.int64)

    @property
    def capacity_rows(self) -> int:
        """Slots of the pool."""
        return len(self._row_of)

    def plan(self, trace: AccessTrace) -> RowPlan:
        """Plan the next window. Arguments and errors as for `plan_rows`."""
        check_type("trace", trace, AccessTrace, "pass wb.AccessTrace.of(reads)")
        ids, offsets = check_ids("trace.ids", trace.ids, self._num_rows).cpu(), trace.offsets.cpu()
        before = self._resident()
        skipped = len(before.ids)
        all_ids = torch.cat([before.ids, ids]) if skipped else ids
        ends = torch.cat([before.offsets[:-1], offsets + skipped])
        read, places = uninitialised(ids, len(ids)), uninitialised(ids, len(ids), dtype=torch.int32)
        counts = torch.zeros(len(trace) + 1, dtype=torch.int64)
        arrays = (all_ids, ends, *by_next_use(all_ids, ends, self._num_rows), read, places, counts)
        ahead, pool = 1 if self._overlap else 0, (self._slot_of.numpy(), self._row_of.numpy(), self._size)
        self._size, short = _plan(ahead, len(before), *pool, *(one.numpy() for one in arrays))
        if short != _NONE:
            raise self._too_small(ids, offsets, short)
        if self._overlap and len(trace):
            self._last = ids[trace.offsets[-2] :]
        first = read[: counts[-1]].numpy()  # access of each row that is read
        return RowPlan(_taken(ids, first), _taken(places, first), counts, places, self._size)

    def _resident(self) -> AccessTrace:
        """The rows of the pool as two groups before the window's: those of the last group of all are still in use."""
        rows = self._row_of[: self._size]
        used = torch.isin(rows, self._last)
        return AccessTrace.of([rows[~used], rows[used]])

    def _too_small(self, ids: Tensor, offsets: Tensor, group: int) -> CapacityError:
        held, which = ids[offsets[group] : offsets[group + 1]], f"group {group} of the window reads"
        if self._overlap:
            before = self._last if group == 0 else ids[offsets[group - 1] : offsets[group]]
            if len(before):
                held, which = torch.cat([before, held]), f"group {group} of the window and the one before it read"
        without, remedy = ", pass overlap=False" if self._overlap else "", "raise it"
        if self._row_bytes is not None:
            most = most_in_use([self._last, *AccessTrace(ids, offsets)], overlap=self._overlap)
            remedy = f"raise memory to {most * max(1, self._row_bytes)}, enough for the window"
        return CapacityError(
            f"{which} {len(held.unique()):,} rows, but there is memory for {self.capacity_rows:,}; "
            f"{remedy}{without}, or lower group or batch_size"
        )


def most_in_use(reads: Iterable[Tensor], *, overlap: bool = True) -> int:
    """Count the distinct rows of a group, or with `overlap` of two groups one after the other, at most.

    Args:
        reads: ids that each group reads.
        overlap: as for `plan_rows`.
    """
    groups = list(reads)
    together = map(torch.cat, pairwise([groups[0][:0], *groups])) if groups and overlap else groups
    return max((len(ids.unique()) for ids in together), default=0)


def by_next_use(ids: Tensor, offsets: Tensor, num_rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Order the accesses of a trace by the group that reads their row next, in lists of one group each.

    Args:
        ids: int64 [num_accesses], in [0, num_rows).
        offsets: int64 [number of groups + 1].
        num_rows: exclusive upper bound of the ids.

    Returns:
        int32 [num_accesses], the next group of each, or the number of groups if there is none; its own group if a later
            access of it reads the row too.
        int32 or int64 [num_accesses], the lists: positions of accesses, ascending in each.
        int64 [number of groups + 2], where each list begins.
    """
    groups = len(offsets) - 1
    following, upcoming = uninitialised(ids, len(ids), dtype=torch.int32), _filled(num_rows, groups)
    ends = torch.zeros(groups + 2, dtype=torch.int64)
    order = uninitialised(ids, len(ids), dtype=torch.int32 if len(ids) < 1 << 31 else torch.int64)
    _order_by_next_use(*(one.numpy() for one in (ids, offsets, upcoming, following, ends, order)))
    return following, order, ends


def _filled(size: int, value: int) -> Tensor:
    """An int32 tensor; torch.full would wake threads, whose spinning slows a plan that is made at the same time."""
    out = uninitialised(torch.empty(0, dtype=torch.int32), size)
    out.numpy().fill(value)
    return out


def _taken(values: Tensor, places: np.ndarray) -> Tensor:
    """Int64 values at some places. Memory is torch's: an empty array of NumPy has a stride of 0, and can't be saved."""
    out = uninitialised(values, len(places), dtype=torch.int64)
    out.numpy()[:] = values.numpy()[places]
    return out


@compiled
def _order_by_next_use(ids, offsets, upcoming, following, ends, order):
    groups = len(offsets) - 1
    for group in range(groups - 1, -1, -1):
        for i in range(offsets[group + 1] - 1, offsets[group] - 1, -1):
            prefetch(upcoming, ids[max(0, i - _AHEAD)])
            following[i], upcoming[ids[i]] = upcoming[ids[i]], group
            ends[following[i] + 1] += 1
    for group in range(groups + 1):
        ends[group + 1] += ends[group]
    at = ends.copy()
    for i in range(len(ids)):
        order[at[following[i]]] = i
        at[following[i]] += 1


@compiled
def _plan(ahead, first, slot_of, row_of, size, ids, offsets, following, order, begins, read, places, counts):
    """Plan all groups from `first` on; return the number of slots used, and the group that finds none, or `_NONE`.

    A row may be evicted once the group of its last access has been trained, which releases the access. Until its next
    use nothing else happens to it, so the rows to evict are those of accesses released, from the list of the last group
    on; those that were considered are never looked at again. `lists` are those with others, the last group's first.
    """
    last = len(ids) - 1
    count, skipped, considered, released = 0, offsets[first], begins[:-1].copy(), begins[:-1].copy()
    lists = [np.int64(0)]  # the compiler knows the type of its elements, also when it is empty
    lists.clear()
    for group in range(first, len(offsets) - 1):
        trained = group - 1 - ahead
        for i in range(offsets[trained if group > first else 0], offsets[trained + 1]):
            later = np.int64(following[i])
            if released[later] == considered[later] and later > group:
                heappush(lists, -later)
            released[later] += 1
        for i in range(offsets[group], offsets[group + 1]):
            prefetch(slot_of, ids[min(i + _AHEAD, last)])
            slot = np.int64(slot_of[ids[i]])
            if slot == _NONE:
                if size < len(row_of):
                    slot = np.int64(size)
                    size += 1
                while slot == _NONE:
                    if len(lists) == 0 or -lists[0] <= group:
                        return size, group - first
                    later = -lists[0]
                    prefetch(slot_of, ids[order[min(considered[later] + _AHEAD, released[later] - 1)]])
                    row = ids[order[considered[later]]]
                    considered[later] += 1
                    if considered[later] == released[later]:
                        heappop(lists)
                    slot = np.int64(slot_of[row])
                    slot_of[row] = _NONE
                slot_of[ids[i]], row_of[slot] = slot, ids[i]
                read[count] = i - skipped
                count += 1
            places[i - skipped] = slot
        counts[group - first + 1] = count
    return size, _NONE
