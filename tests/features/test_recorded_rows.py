"""Recording: every successful read, in order, whatever happens to the caller's tensor later."""

import pytest
import torch

from workbench.features.cached_rows import RecordedRows

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
