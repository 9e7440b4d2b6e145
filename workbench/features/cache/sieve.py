"""SIEVE: a hand passes from old to new rows, clears the bits of those that hit, and evicts the first that did not.

Unlike in CLOCK, rows that are kept stay where they are in the queue.

Source: Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is simpler than LRU", NSDI 2024, algorithm 1.
"""

import numpy as np

from workbench.features.cache.state import (
    HAND,
    MAIN_QUEUE,
    is_full,
    next_free_slot,
    oldest,
    push,
    put,
    sentinel,
    unlink,
)
from workbench.kernels.jit import compiled


@compiled(_nrt=False)
def hit_sieve(s, slot):
    s.mark[slot] = 1


@compiled(_nrt=False)
def admit_sieve(s, row):
    slot = _evict(s) if is_full(s) else next_free_slot(s)
    put(s, slot, row)
    push(s, MAIN_QUEUE, slot)
    return slot


@compiled(_nrt=False)
def _evict(s):
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
    unlink(s, slot)
    return slot
