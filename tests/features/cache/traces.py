"""Traces for the tests of policies."""

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


def traces(num_rows: int = 5, max_reads: int = 5, max_read: int = 4) -> st.SearchStrategy[AccessTrace]:
    """Traces with repeats within a read and reads without ids."""
    reads = st.lists(st.lists(st.integers(0, num_rows - 1), max_size=max_read), max_size=max_reads)
    return reads.map(lambda ids: AccessTrace.of([torch.tensor(read, dtype=torch.int64) for read in ids]))


def one_by_one(trace: AccessTrace) -> AccessTrace:
    """The trace with one access per read, so that hits per read are hits per access."""
    return AccessTrace(trace.ids, torch.arange(len(trace.ids) + 1))
