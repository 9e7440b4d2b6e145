"""The state of a cache in flat arrays: which row is in which slot, the order of the slots, and their marks.

A node is a slot of the cache, or a ghost: a remembered id without a row (S3-FIFO). Nodes are members of circular
queues, each with a sentinel node whose `older` is the newest member and whose `newer` is the oldest.

All kernels of the policies are compiled without reference counts (`_nrt`): counting the references to these arrays at
every call takes ten times as long as an access. Such kernels can't allocate.
"""

from typing import NamedTuple

import numpy as np
import torch

from workbench.core.capacity import check_fits
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
        capacity: number of slots.
        ghosts: number of ids to remember beyond them.
        next_use: int64 [num_accesses], for Belady.

    Raises:
        CapacityError: it does not fit into memory.
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
def push(s, queue, node):
    """Insert a node as the newest member of a queue."""
    end = sentinel(s, queue)
    newest = s.older[end]
    s.newer[node], s.older[node] = end, newest
    s.newer[newest] = node
    s.older[end] = node


@compiled(_nrt=False)
def unlink(s, node):
    """Remove a node from its queue."""
    newer, older = s.newer[node], s.older[node]
    s.older[newer], s.newer[older] = older, newer


@compiled(_nrt=False)
def oldest(s, queue):
    """Return the oldest member of a queue, or its sentinel if it is empty."""
    return s.newer[sentinel(s, queue)]
