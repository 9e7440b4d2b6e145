"""Recording: every successful read, in order, whatever happens to the caller's tensor later."""

import pytest
import torch

import workbench as wb
from workbench.features.cached_rows import RecordedRows
from workbench.features.stage import stage_ids

X = torch.arange(6.0)


def test_reads_are_recorded_in_order_until_cleared() -> None:
    store, ids = RecordedRows(X), torch.tensor([4, 4, 1], dtype=torch.int32)
    store.read(ids)
    ids.zero_()
    store.read(ids[:0])
    with pytest.raises(IndexError):
        store.read(torch.tensor([9]))
    assert [read.tolist() for read in store.trace] == [[4, 4, 1], []]
    store.clear()
    assert len(store.trace) == 0


def test_a_recorded_run_drives_belady() -> None:
    """`CachedRows` reads what is staged as distinct ids in ascending order, and follows a trace of these alone."""
    windows = [torch.tensor(ids) for ids in ([3, 1, 3], [5, 1], [3, 0, 0])]
    recorded = RecordedRows(X)
    for ids in windows:
        stage_ids(recorded, ids.int())
        recorded.read(ids)
    assert [read.tolist() for read in recorded.trace] == [[1, 3], [3, 1, 3], [1, 5], [5, 1], [0, 3], [3, 0, 0]]
    cache = wb.CachedRows(X, 2, policy="belady", trace=recorded.trace)
    for ids in windows:
        staged = cache.stage(ids)
        assert torch.equal(staged.read(ids), X[ids]) and torch.equal(cache.read(ids), X[ids])
    direct = RecordedRows(X)
    direct.stage(windows[0])
    assert [read.tolist() for read in direct.trace] == [[1, 3]]
