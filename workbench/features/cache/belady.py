"""Belady's MIN: evicts the row whose next use is farthest in the future, which requires the trace.

No policy that inserts every missing row misses less, in access semantics. The variant with bypass does not insert a row
whose next use is farther than that of all rows in the cache; no policy at all that starts empty misses less, in either
semantics if the ids of a read are distinct.

Source: Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5, 1966.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.features.cache.state import NONE, NOW, is_full, next_free_slot, put
from workbench.kernels.jit import compiled

_NEVER = np.iinfo(np.int64).max


def next_uses(ids: Tensor, offsets: Tensor, num_rows: int, *, later_read: bool) -> np.ndarray:
    """Compute the position of each access's next use.

    Args:
        ids: int64 [num_accesses], in [0, num_rows).
        offsets: int64 [num_reads + 1].
        num_rows: exclusive upper bound of the ids.
        later_read: count only uses in later reads, as batch semantics does, instead of later accesses.

    Returns:
        int64 [num_accesses]; the largest int64 for rows that are not used again.
    """
    found = torch.empty_like(ids).numpy()
    upcoming = torch.full((num_rows,), _NEVER, dtype=torch.int64).numpy()
    _next_uses(ids.numpy(), offsets.numpy(), upcoming, later_read, found)
    return found


@compiled(_nrt=False)
def _next_uses(ids, offsets, upcoming, later_read, found):
    for read in range(len(offsets) - 2, -1, -1):
        lo, hi = offsets[read], offsets[read + 1]
        for i in range(hi - 1, lo - 1, -1):
            found[i] = upcoming[ids[i]]
            if not later_read:
                upcoming[ids[i]] = i
        if later_read:
            for i in range(hi - 1, lo - 1, -1):
                upcoming[ids[i]] = i


@compiled(_nrt=False)
def hit_belady(s, slot):
    s.next_of[slot] = s.next_use[s.counters[NOW]]
    _sift_up(s, s.place[slot])


@compiled(_nrt=False)
def admit_belady(s, row, bypass):
    next_use = s.next_use[s.counters[NOW]]
    if not is_full(s):
        slot = next_free_slot(s)
        _store(s, slot, slot)
        s.next_of[slot] = next_use
        _sift_up(s, slot)
    else:
        slot = s.heap[0]
        if bypass and next_use >= s.next_of[slot]:
            return NONE
        s.next_of[slot] = next_use
        _sift_down(s)
    put(s, slot, row)
    return slot


@compiled(_nrt=False)
def _store(s, position, slot):
    s.heap[position] = slot
    s.place[slot] = position


@compiled(_nrt=False)
def _sift_up(s, position):
    """Move a slot whose next use has become later towards the root."""
    slot = s.heap[position]
    key = s.next_of[slot]
    while position:
        parent = (position - 1) >> 1
        if s.next_of[s.heap[parent]] >= key:
            break
        _store(s, position, s.heap[parent])
        position = parent
    _store(s, position, slot)


@compiled(_nrt=False)
def _sift_down(s):
    """Move the root, whose next use has become earlier, towards the leaves."""
    size, position, slot = len(s.heap), 0, s.heap[0]
    key = s.next_of[slot]
    child = 1
    while child < size:
        if child + 1 < size and s.next_of[s.heap[child + 1]] > s.next_of[s.heap[child]]:
            child += 1
        if s.next_of[s.heap[child]] <= key:
            break
        _store(s, position, s.heap[child])
        position, child = child, 2 * child + 1
    _store(s, position, slot)
