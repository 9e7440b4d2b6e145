"""Access traces: reads in, the same reads out."""

import pytest
import torch

from workbench.core.trace import AccessTrace

READS = [[3, 1, 3], [], [0]]


def test_reads_come_back_in_order() -> None:
    trace = AccessTrace.of(torch.tensor(ids, dtype=torch.int32) for ids in READS)
    assert [ids.tolist() for ids in trace] == READS and len(trace) == 3
    assert trace.ids.tolist() == [3, 1, 3, 0] and trace.offsets.tolist() == [0, 3, 3, 4]
    assert trace.ids.dtype == torch.int64
    assert repr(trace) == "AccessTrace(3 reads of 4 rows)"


def test_no_reads() -> None:
    assert list(AccessTrace.of([])) == [] and len(AccessTrace.of([])) == 0
    assert [ids.tolist() for ids in AccessTrace.of([torch.empty(0, dtype=torch.int64)])] == [[]]


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([], "offsets is empty"),
        ([0, 1], "offsets runs from 0 to 1; it must run from 0 to the 2 ids"),
        ([0, 2, 1, 2], "decrease after read 1"),
    ],
)
def test_offsets_are_checked(offsets: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AccessTrace(torch.tensor([5, 6]), torch.tensor(offsets, dtype=torch.int64))


def test_negative_ids_are_refused() -> None:
    with pytest.raises(IndexError, match="ids contains -1"):
        AccessTrace.of([torch.tensor([2, -1])])
