"""The machine of a cache: one policy's state, and the two semantics in which reads pass through it.

*Access semantics*: each access of a read is looked up and, if it misses, admitted before the next one is looked up.
*Batch semantics*: query all, then replace. An access hits if its row is resident when its read begins; then the policy
is told of all hits, in order; then the misses are admitted, in order, except rows that have become resident meanwhile.
Several accesses of one read to a missing row are as many misses.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.features.cache.eviction import (
    BELADY,
    BELADY_BYPASS,
    CLOCK,
    FIFO,
    LRU,
    NONE,
    NOW,
    S3_FIFO,
    SIEVE,
    SIZE,
    CacheState,
    admit_belady,
    admit_clock,
    admit_fifo,
    admit_lru,
    admit_s3fifo,
    admit_sieve,
    hit_belady,
    hit_lru,
    hit_s3fifo,
    mark_visited,
    resident_slot,
)
from workbench.kernels.jit import compiled


class CacheMachine:
    """A policy and its state.

    Args:
        policy: code of the policy.
        state: its state, which the methods modify.
    """

    def __init__(self, policy: int, state: CacheState) -> None:
        self._policy, self.state = policy, state

    def resident_rows(self) -> Tensor:
        """Return the ids of the rows of a cache that has not evicted any, int64, in the order of their slots."""
        return torch.from_numpy(self.state.row_of[: self.state.counters[SIZE]])

    def seek(self, position: int) -> None:
        """Continue at a position of the trace."""
        self.state.counters[NOW] = position

    def replay(self, ids: np.ndarray, offsets: np.ndarray, *, batches: bool) -> np.ndarray:
        """Pass reads through the cache: int64 [num_reads], hits per read.

        Args:
            ids: int64 [num_accesses], in range (not checked).
            offsets: int64 [num_reads + 1].
            batches: batch semantics instead of access semantics.
        """
        hits = torch.zeros(len(offsets) - 1, dtype=torch.int64).numpy()
        if batches:
            slots, placed = torch.empty(2, max(np.diff(offsets), default=0), dtype=torch.int64).numpy()
            _replay_batches(self._policy, self.state, ids, offsets, hits, slots, placed)
        else:
            _replay_accesses(self._policy, self.state, ids, offsets, hits)
        return hits

    def query(self, ids: np.ndarray) -> np.ndarray:
        """Return the slot of each id that is resident, otherwise −1: int64 [n]; changes nothing."""
        slots = torch.empty(len(ids), dtype=torch.int64).numpy()
        _query(self.state, ids, slots)
        return slots

    def replace(self, ids: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Complete a read: tell the policy of its hits and admit its misses.

        Args:
            ids: int64 [n], the read.
            slots: int64 [n], as `query` returned them.

        Returns:
            int64 [n], the slot that each missing row has been assigned and still has at the end; −1 for all others.
        """
        placed = torch.empty(len(ids), dtype=torch.int64).numpy()
        _replace(self._policy, self.state, ids, slots, placed)
        return placed


@compiled(_nrt=False)
def _hit(policy, s, slot):
    """Tell the policy of a hit; FIFO and static caches do not care."""
    if policy == LRU:
        hit_lru(s, slot)
    elif policy in (CLOCK, SIEVE):
        mark_visited(s, slot)
    elif policy == S3_FIFO:
        hit_s3fifo(s, slot)
    elif policy in (BELADY, BELADY_BYPASS):
        hit_belady(s, slot)


@compiled(_nrt=False)
def _admit(policy, s, row):
    """Return the slot that a missing row has been assigned, or `NONE` if it is not admitted."""
    if policy == LRU:
        return np.int64(admit_lru(s, row))
    if policy == FIFO:
        return np.int64(admit_fifo(s, row))
    if policy == CLOCK:
        return np.int64(admit_clock(s, row))
    if policy == SIEVE:
        return np.int64(admit_sieve(s, row))
    if policy == S3_FIFO:
        return np.int64(admit_s3fifo(s, row))
    if policy in (BELADY, BELADY_BYPASS):
        return np.int64(admit_belady(s, row, policy == BELADY_BYPASS))
    return np.int64(NONE)  # static


@compiled(_nrt=False)
def _replay_accesses(policy, s, ids, offsets, hits):
    for read in range(len(hits)):
        for i in range(offsets[read], offsets[read + 1]):
            s.counters[NOW] = i
            slot = resident_slot(s, ids[i])
            if slot != NONE:
                _hit(policy, s, slot)
                hits[read] += 1
            else:
                _admit(policy, s, ids[i])


@compiled(_nrt=False)
def _replay_batches(policy, s, ids, offsets, hits, slots, placed):
    for read in range(len(hits)):
        lo, hi = offsets[read], offsets[read + 1]
        _query(s, ids[lo:hi], slots)
        _replace(policy, s, ids[lo:hi], slots, placed)
        for i in range(hi - lo):
            hits[read] += slots[i] != NONE


@compiled(_nrt=False)
def _query(s, ids, slots):
    for i in range(len(ids)):
        slots[i] = resident_slot(s, ids[i])


@compiled(_nrt=False)
def _replace(policy, s, ids, slots, placed):
    start = s.counters[NOW]
    for i in range(len(ids)):
        s.counters[NOW] = start + i
        if slots[i] != NONE:
            _hit(policy, s, slots[i])
    for i in range(len(ids)):
        s.counters[NOW] = start + i
        placed[i] = NONE
        if slots[i] == NONE and resident_slot(s, ids[i]) == NONE:
            placed[i] = _admit(policy, s, ids[i])
    for i in range(len(ids)):
        if placed[i] != NONE and resident_slot(s, ids[i]) != placed[i]:
            placed[i] = NONE  # evicted again by a later row of the read
    s.counters[NOW] = start + len(ids)
