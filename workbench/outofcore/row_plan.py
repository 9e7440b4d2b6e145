"""`plan_rows`: which rows a known sequence of batches reads from disk, and when: Belady's rule with reads ahead.

Samples are a function of (seed, step), so they can be drawn before the rows are read, and what is read is known. Rows
are in a pool of slots. While a group of batches is trained, the next one's rows are read, so the rows of both are in
the pool; of all other rows, those whose next use is farthest in the future are evicted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import CapacityError, check_at_least, check_ids, check_type
from workbench.core.trace import AccessTrace
from workbench.features.cache.eviction import (
    NONE,
    SIZE,
    CacheState,
    empty_state,
    is_full,
    next_free_slot,
    next_uses,
    put,
    put_in_heap,
    resident_slot,
    sift_down,
    sift_up,
)
from workbench.features.cache.policies import MAX_CAPACITY, num_rows_of
from workbench.kernels.jit import compiled


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

    Raises:
        ValueError: a number out of range.
        CapacityError: the state, 4 bytes per row and 40 per slot, does not fit into memory.
    """

    def __init__(self, num_rows: int, capacity_rows: int, *, overlap: bool = True) -> None:
        check_at_least("num_rows", num_rows, 0)
        check_at_least("capacity_rows", capacity_rows, 1, most=MAX_CAPACITY)
        room = min(capacity_rows, max(1, num_rows))
        self._num_rows, self._overlap = num_rows, overlap
        self._state = empty_state(num_rows, room, next_use=np.empty(0, np.int64))
        self._later, self._used = (torch.empty(room, dtype=torch.int64) for _ in range(2))
        self._last = torch.empty(0, dtype=torch.int64)

    @property
    def capacity_rows(self) -> int:
        """Slots of the pool."""
        return len(self._state.mark)

    def plan(self, trace: AccessTrace) -> RowPlan:
        """Plan the next window. Arguments and errors as for `plan_rows`."""
        check_type("trace", trace, AccessTrace, "pass wb.AccessTrace.of(reads)")
        ids, offsets = check_ids("trace.ids", trace.ids, self._num_rows).cpu(), trace.offsets.cpu()
        state, before = self._resumed(ids, offsets)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), offsets + before])
        resident = torch.from_numpy(state.row_of[:before])
        all_ids = torch.cat([resident, ids])
        read = torch.empty(2, len(ids), dtype=torch.int64)
        places, counts = torch.empty(len(ids), dtype=torch.int32), torch.zeros(len(trace) + 1, dtype=torch.int64)
        arrays = (self._later, self._used, all_ids, offsets, *read, places, counts)
        short = _plan(state, 1 if self._overlap else 0, *(array.numpy() for array in arrays))
        if short != NONE:
            raise self._too_small(all_ids, offsets, short)
        self._state = state
        if self._overlap and len(trace):
            self._last = ids[trace.offsets[-2] :]
        num_read = int(counts[-1])
        ids_read, slots = (part[:num_read].clone() for part in read)
        return RowPlan(ids_read, slots, counts, places, int(state.counters[SIZE]))

    def _resumed(self, ids: Tensor, offsets: Tensor) -> tuple[CacheState, int]:
        """State with the next uses of a window, in which the rows in the pool are a group before its first one.

        Those of the last window's last group are still in use.
        """
        before = int(self._state.counters[SIZE])
        resident = torch.from_numpy(self._state.row_of[:before])
        groups = torch.cat([torch.tensor([0]), offsets + before])
        uses = next_uses(torch.cat([resident, ids]), groups, self._num_rows, later_read=True)
        state = self._state._replace(next_use=uses)
        _begin(state, self._later.numpy(), self._used.numpy(), self._last.numpy())
        return state, before

    def _too_small(self, ids: Tensor, offsets: Tensor, group: int) -> CapacityError:
        held, which = ids[offsets[group] : offsets[group + 1]], f"group {group - 1} of the window reads"
        if self._overlap:
            before = self._last if group == 1 else ids[offsets[group - 1] : offsets[group]]
            if len(before):
                held, which = torch.cat([before, held]), f"group {group - 1} of the window and the one before it read"
        without = ", pass overlap=False" if self._overlap else ""
        return CapacityError(
            f"{which} {len(held.unique()):,} rows, but there is memory for {self.capacity_rows:,}; raise "
            f"it{without}, or lower group or batch_size"
        )


_PINNED = -1


@compiled(_nrt=False)
def _begin(s, later, used, last):
    """Order the rows of the pool by their next use, except those that are in use."""
    for slot in range(s.counters[SIZE]):
        later[slot] = s.next_use[slot]
        used[slot] = NONE
    for i in range(len(last)):
        used[resident_slot(s, last[i])] = 0
    for slot in range(s.counters[SIZE]):
        s.next_of[slot] = later[slot] if used[slot] == NONE else _PINNED
        put_in_heap(s, slot, slot)
        sift_up(s, slot)


@compiled(_nrt=False)
def _plan(s, ahead, later, used, ids, offsets, read_ids, read_slots, places, counts):
    """Plan all groups but the first, the rows of the pool; return the one that finds no slot, or `NONE`.

    A row's key is the position of its next use, or `_PINNED` while it can't be evicted: from the time its group's rows
    are read until its group has been trained.
    """
    count, skipped = 0, offsets[1]
    for group in range(1, len(offsets) - 1):
        trained = group - 1 - ahead
        if trained >= 0:
            for i in range(offsets[trained], offsets[trained + 1]):
                slot = resident_slot(s, ids[i])
                if slot != NONE and used[slot] == trained and s.next_of[slot] == _PINNED:
                    s.next_of[slot] = later[slot]
                    sift_up(s, s.place[slot])
        lo, hi = offsets[group], offsets[group + 1]
        for i in range(lo, hi):
            slot = resident_slot(s, ids[i])
            if slot != NONE:
                later[slot], used[slot] = s.next_use[i], group
                if s.next_of[slot] != _PINNED:
                    s.next_of[slot] = _PINNED
                    sift_down(s, s.place[slot])
        for i in range(lo, hi):
            slot = resident_slot(s, ids[i])
            if slot == NONE:
                slot = _free_slot(s)
                if slot == NONE:
                    return group
                put(s, slot, ids[i])
                later[slot], used[slot] = s.next_use[i], group
                read_ids[count], read_slots[count] = ids[i], slot
                count += 1
            places[i - skipped] = slot
        counts[group] = count
    return NONE


@compiled(_nrt=False)
def _free_slot(s):
    """Return a slot, pinned: a new one, or that of the row whose next use is farthest; `NONE` if all are pinned."""
    if not is_full(s):
        slot = next_free_slot(s)
        put_in_heap(s, slot, slot)
        s.next_of[slot] = _PINNED
        return slot
    slot = np.int64(s.heap[0])
    if s.next_of[slot] == _PINNED:
        return np.int64(NONE)
    s.next_of[slot] = _PINNED
    sift_down(s, 0)
    return slot
