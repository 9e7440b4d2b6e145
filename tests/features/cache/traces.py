"""Traces and a brute-force cache for the tests of policies."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from hypothesis import strategies as st

from workbench.core.trace import AccessTrace


def skewed_trace(num_reads: int = 40, read_size: int = 250, num_rows: int = 1000, *, seed: int = 0) -> AccessTrace:
    """Reads of ids by a power law whose popular rows drift, so that every policy has something to find."""
    rng = np.random.default_rng(seed)
    drawn = (num_rows * rng.random((num_reads, read_size)) ** 3).astype(np.int64)
    drift = np.arange(num_reads)[:, None] * (num_rows // 100)
    return AccessTrace.of(list(torch.from_numpy((drawn + drift) % num_rows)))


def tiny_traces(num_rows: int = 5, max_reads: int = 5, max_read: int = 4) -> st.SearchStrategy[AccessTrace]:
    """Traces of few rows, with repeats within a read and reads without ids."""
    reads = st.lists(st.lists(st.integers(0, num_rows - 1), max_size=max_read), max_size=max_reads)
    return reads.map(lambda ids: AccessTrace.of([torch.tensor(read, dtype=torch.int64) for read in ids]))


class Replay:
    """A cache of a set and a function, without any of the library's machinery.

    Args:
        capacity: number of rows.
        victim: chooses the row to evict from the resident ones, or the new row itself to bypass the cache.
    """

    def __init__(self, capacity: int, victim: Callable[[set[int], int, int], int]) -> None:
        self.capacity, self.victim = capacity, victim
        self.resident: set[int] = set()

    def admit(self, row: int, now: int) -> None:
        out = self.victim(self.resident, row, now) if len(self.resident) == self.capacity else None
        if out != row:
            self.resident = (self.resident - {out}) | {row}


def accesses(trace: AccessTrace) -> Iterator[tuple[int, int]]:
    """Position and row of every access."""
    return enumerate(trace.ids.tolist())


def distinct(rows: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(rows))
