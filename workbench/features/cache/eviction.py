"""Which row a cache evicts: LRU, FIFO, CLOCK, S3-FIFO, SIEVE and Belady's MIN, one state machine each.

Their state is in flat arrays: which row is in which slot, the order of the slots, and their marks.

A node is a slot of the cache, or a ghost: a remembered id without a row (S3-FIFO). Nodes are members of circular
queues, each with a sentinel node whose `older` is the newest member and whose `newer` is the oldest.

All kernels of the policies are compiled without reference counts (`_nrt`): counting the references to these arrays at
every call takes ten times as long as an access. Such kernels can't allocate.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_fits
from workbench.kernels.jit import compiled

LRU, FIFO, CLOCK, SIEVE, S3_FIFO, STATIC, BELADY, BELADY_BYPASS = range(8)
"""Codes of the policies in compiled code."""

NONE = -1

SIZE, HAND, NOW, SMALL, SMALL_LIMIT, GHOSTS, HAS_EVICTED, NUM_COUNTERS = range(8)
"""Positions in `counters`: occupied slots; the hand of FIFO, CLOCK and SIEVE; the position in the trace (Belady); slots
of S3-FIFO's small queue, their limit, ghosts, and whether a row was ever evicted."""

MAIN_QUEUE, SMALL_QUEUE, GHOST_QUEUE, NUM_QUEUES = range(4)
"""Queues by the distance of their sentinels from the last node; all policies but S3-FIFO use the first alone."""


class CacheState(NamedTuple):
    """Arrays of one cache, modified in place.

    Args:
        node_of: int32 [num_rows], the node of each row, or `NONE`; a row is resident if its node is a slot.
        row_of: int64 [num_nodes], the row of each node.
        newer: int32 [num_nodes + NUM_QUEUES], the next newer member of the node's queue.
        older: int32 [num_nodes + NUM_QUEUES], the next older one.
        mark: uint8 [capacity], visited bits or frequencies.
        counters: int64 [NUM_COUNTERS].
        next_use: int64 [num_accesses], the position of the next use per access of the trace (Belady).
        next_of: int64 [capacity], the next use of each slot's row (Belady).
        heap: int32 [capacity], slots as a binary heap, the latest next use first (Belady).
        place: int32 [capacity], the position of each slot in the heap (Belady).
    """

    node_of: np.ndarray
    row_of: np.ndarray
    newer: np.ndarray
    older: np.ndarray
    mark: np.ndarray
    counters: np.ndarray
    next_use: np.ndarray
    next_of: np.ndarray
    heap: np.ndarray
    place: np.ndarray


def empty_state(num_rows: int, capacity: int, *, ghosts: int = 0, next_use: np.ndarray | None = None) -> CacheState:
    """Allocate the state of an empty cache.

    Args:
        num_rows: number of rows of the store.
        next_use: int64 [num_accesses], for Belady.
    """
    nodes, heap = capacity + ghosts, capacity if next_use is not None else 0
    nbytes = 4 * num_rows + 16 * nodes + capacity + 16 * heap
    check_fits(f"the state of a cache of {capacity:,} of {num_rows:,} rows", nbytes, "lower capacity_rows")
    return CacheState(
        node_of=_array(num_rows, torch.int32, NONE),
        row_of=_array(nodes, torch.int64, NONE),
        newer=torch.arange(nodes + NUM_QUEUES, dtype=torch.int32).numpy(),
        older=torch.arange(nodes + NUM_QUEUES, dtype=torch.int32).numpy(),
        mark=_array(capacity, torch.uint8, 0),
        counters=_array(NUM_COUNTERS, torch.int64, 0),
        next_use=np.empty(0, np.int64) if next_use is None else next_use,
        next_of=_array(heap, torch.int64, 0),
        heap=_array(heap, torch.int32, 0),
        place=_array(heap, torch.int32, 0),
    )


def _array(size: int, dtype: torch.dtype, value: int) -> np.ndarray:
    return torch.full((size,), value, dtype=dtype).numpy()


@compiled(_nrt=False)
def resident_slot(s, row):
    """Return the slot of a row, or `NONE`."""
    node = s.node_of[row]
    return node if node < len(s.mark) else NONE


@compiled(_nrt=False)
def is_full(s):
    return s.counters[SIZE] == len(s.mark)


@compiled(_nrt=False)
def next_free_slot(s):
    """Occupy a slot of a cache that is not full."""
    s.counters[SIZE] += 1
    return s.counters[SIZE] - 1


@compiled(_nrt=False)
def put(s, node, row):
    """Assign a row to a node; the row that it had is forgotten."""
    before = s.row_of[node]
    if before != NONE:
        s.node_of[before] = NONE
    s.row_of[node] = row
    s.node_of[row] = node


@compiled(_nrt=False)
def sentinel(s, queue):
    return len(s.row_of) + queue


@compiled(_nrt=False)
def push_node(s, queue, node):
    """Insert a node as the newest member of a queue."""
    end = sentinel(s, queue)
    newest = s.older[end]
    s.newer[node], s.older[node] = end, newest
    s.newer[newest] = node
    s.older[end] = node


@compiled(_nrt=False)
def remove_node(s, node):
    """Remove a node from its queue."""
    newer, older = s.newer[node], s.older[node]
    s.older[newer], s.newer[older] = older, newer


@compiled(_nrt=False)
def oldest(s, queue):
    """Return the oldest member of a queue, or its sentinel if it is empty."""
    return s.newer[sentinel(s, queue)]


@compiled(_nrt=False)
def hit_lru(s, slot):
    remove_node(s, slot)
    push_node(s, MAIN_QUEUE, slot)


@compiled(_nrt=False)
def admit_lru(s, row):
    if is_full(s):
        slot = oldest(s, MAIN_QUEUE)
        remove_node(s, slot)
    else:
        slot = next_free_slot(s)
    put(s, slot, row)
    push_node(s, MAIN_QUEUE, slot)
    return slot


@compiled(_nrt=False)
def admit_fifo(s, row):
    slot = _advance(s) if is_full(s) else next_free_slot(s)
    put(s, slot, row)
    return slot


@compiled(_nrt=False)
def mark_visited(s, slot):
    s.mark[slot] = 1


@compiled(_nrt=False)
def admit_clock(s, row):
    if is_full(s):
        slot = _advance(s)
        while s.mark[slot]:
            s.mark[slot] = 0
            slot = _advance(s)
    else:
        slot = next_free_slot(s)
    put(s, slot, row)
    return slot


@compiled(_nrt=False)
def _advance(s):
    """Return the slot under the hand and move the hand to the next."""
    slot = s.counters[HAND]
    s.counters[HAND] = slot + 1 if slot + 1 < len(s.mark) else 0
    return slot


SMALL_SHARE = 0.1

GHOST_SHARE = 0.9

_MAX_FREQUENCY = 3

_MOVE_TO_MAIN = 2


@compiled(_nrt=False)
def hit_s3fifo(s, slot):
    s.mark[slot] = min(s.mark[slot] + 1, _MAX_FREQUENCY)


@compiled(_nrt=False)
def admit_s3fifo(s, row):
    to_main = _forget_ghost(s, row)
    slot = _evict_from_queues(s) if is_full(s) else next_free_slot(s)
    if not s.counters[HAS_EVICTED] and s.counters[SMALL] >= s.counters[SMALL_LIMIT]:
        to_main = True
    put(s, slot, row)
    s.mark[slot] = 0
    s.counters[SMALL] += 0 if to_main else 1
    push_node(s, MAIN_QUEUE if to_main else SMALL_QUEUE, slot)
    return slot


@compiled(_nrt=False)
def _forget_ghost(s, row):
    """Remove a row from the ghosts; return whether it was one. The last ghost moves to its node, to leave no gap."""
    node = s.node_of[row]
    if node == NONE:
        return False
    remove_node(s, node)
    s.node_of[row] = s.row_of[node] = NONE
    last = len(s.mark) + s.counters[GHOSTS] - 1
    s.counters[GHOSTS] -= 1
    if node != last:
        newer, older = s.newer[last], s.older[last]
        s.newer[node], s.older[node] = newer, older
        s.older[newer] = s.newer[older] = node
        moved = s.row_of[last]
        s.row_of[last] = NONE
        s.row_of[node] = moved
        s.node_of[moved] = node
    return True


@compiled(_nrt=False)
def _remember(s, row):
    """Insert a row that leaves the cache into the ghosts, in place of the oldest one if they are complete."""
    limit = len(s.row_of) - len(s.mark)
    if not limit:
        return
    if s.counters[GHOSTS] == limit:
        node = oldest(s, GHOST_QUEUE)
        remove_node(s, node)
    else:
        node = len(s.mark) + s.counters[GHOSTS]
        s.counters[GHOSTS] += 1
    put(s, node, row)
    push_node(s, GHOST_QUEUE, node)


@compiled(_nrt=False)
def _evict_from_queues(s):
    s.counters[HAS_EVICTED] = 1
    slot = NONE
    while slot == NONE:
        in_main, main_limit = s.counters[SIZE] - s.counters[SMALL], len(s.mark) - s.counters[SMALL_LIMIT]
        slot = _evict_main(s) if in_main > main_limit or s.counters[SMALL] == 0 else _evict_small(s)
    return slot


@compiled(_nrt=False)
def _evict_small(s):
    """Move used rows to the main queue until one is found that was not, and evict that; `NONE` if there is none."""
    while s.counters[SMALL]:
        slot = oldest(s, SMALL_QUEUE)
        remove_node(s, slot)
        s.counters[SMALL] -= 1
        if s.mark[slot] < _MOVE_TO_MAIN:
            row = s.row_of[slot]
            s.row_of[slot] = NONE
            s.node_of[row] = NONE
            _remember(s, row)
            return slot
        s.mark[slot] = 0
        push_node(s, MAIN_QUEUE, slot)
    return NONE


@compiled(_nrt=False)
def _evict_main(s):
    slot = oldest(s, MAIN_QUEUE)
    while s.mark[slot]:
        s.mark[slot] -= 1
        remove_node(s, slot)
        push_node(s, MAIN_QUEUE, slot)
        slot = oldest(s, MAIN_QUEUE)
    remove_node(s, slot)
    return slot


@compiled(_nrt=False)
def admit_sieve(s, row):
    slot = _evict_unvisited(s) if is_full(s) else next_free_slot(s)
    put(s, slot, row)
    push_node(s, MAIN_QUEUE, slot)
    return slot


@compiled(_nrt=False)
def _evict_unvisited(s):
    """Evict under the hand, which starts at the oldest row, slot 0, and rests at the sentinel after the newest."""
    end = sentinel(s, MAIN_QUEUE)
    slot = s.counters[HAND]
    if slot == end:
        slot = np.int64(oldest(s, MAIN_QUEUE))
    while s.mark[slot]:
        s.mark[slot] = 0
        slot = np.int64(s.newer[slot])
        if slot == end:
            slot = np.int64(oldest(s, MAIN_QUEUE))
    s.counters[HAND] = s.newer[slot]
    remove_node(s, slot)
    return slot


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
    sift_up(s, s.place[slot])


@compiled(_nrt=False)
def admit_belady(s, row, bypass):
    next_use = s.next_use[s.counters[NOW]]
    if not is_full(s):
        slot = next_free_slot(s)
        put_in_heap(s, slot, slot)
        s.next_of[slot] = next_use
        sift_up(s, slot)
    else:
        slot = s.heap[0]
        if bypass and next_use >= s.next_of[slot]:
            return NONE
        s.next_of[slot] = next_use
        sift_down(s, 0)
    put(s, slot, row)
    return slot


@compiled(_nrt=False)
def put_in_heap(s, position, slot):
    """Assign a slot to a position of the heap."""
    s.heap[position] = slot
    s.place[slot] = position


@compiled(_nrt=False)
def sift_up(s, position):
    """Move a slot whose next use has become later towards the root."""
    slot = s.heap[position]
    key = s.next_of[slot]
    while position:
        parent = (position - 1) >> 1
        if s.next_of[s.heap[parent]] >= key:
            break
        put_in_heap(s, position, s.heap[parent])
        position = parent
    put_in_heap(s, position, slot)


@compiled(_nrt=False)
def sift_down(s, position):
    """Move a slot whose next use has become earlier towards the leaves."""
    size, slot = s.counters[SIZE], s.heap[position]
    key = s.next_of[slot]
    child = 2 * position + 1
    while child < size:
        if child + 1 < size and s.next_of[s.heap[child + 1]] > s.next_of[s.heap[child]]:
            child += 1
        if s.next_of[s.heap[child]] <= key:
            break
        put_in_heap(s, position, s.heap[child])
        position, child = child, 2 * child + 1
    put_in_heap(s, position, slot)
