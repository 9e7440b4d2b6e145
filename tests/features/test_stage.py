"""Macrobatches: each row of a window is fetched once, and no other row is served."""

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from tests.training.toys import toy_batch
from workbench.core.machine import Traffic
from workbench.core.minibatch import MiniBatch
from workbench.features.cached_rows import RecordedRows
from workbench.features.memory_rows import MemoryRows
from workbench.features.protocols import FeatureStore, Stageable
from workbench.features.stage import StagedRows, stage, stage_ids, windows

X = torch.arange(120.0).view(40, 3)


def batch(*ids: int) -> MiniBatch:
    return MiniBatch(torch.tensor(ids, dtype=torch.int64), ())


@given(st.lists(st.lists(st.integers(0, 39), unique=True, max_size=12), max_size=4))
def test_rows_of_the_window_are_fetched_once(window: list[list[int]]) -> None:
    store = RecordedRows(X)
    batches = [batch(*ids) for ids in window]
    staged = stage(store, list(enumerate(batches)))
    assert [ids.tolist() for ids in store.trace] == [sorted({i for ids in window for i in ids})]
    for mb in batches:
        assert torch.equal(staged.read(mb.node_ids), X[mb.node_ids])
    assert len(staged) == len(X)


def test_a_row_outside_is_an_error_that_names_it() -> None:
    staged = stage(X, [batch(3, 7), batch(7, 1)])
    assert isinstance(staged, StagedRows) and staged.ids.tolist() == [1, 3, 7]
    with pytest.raises(IndexError, match="row 8 is not among the 3 staged rows; stage the window that the batch is in"):
        staged.read(torch.tensor([7, 8, 9]))
    with pytest.raises(IndexError, match=r"ids contains 40; ids must be in \[0, 40\)"):
        staged.read(torch.tensor([40]))


def test_micro_batches_of_a_window_are_served() -> None:
    mb = toy_batch()
    staged = stage(X, [mb])
    for micro in mb.split(torch.arange(mb.num_seeds) % 3):
        assert torch.equal(staged.read(micro.node_ids), X[micro.node_ids])


def test_fetching_and_reading_are_counted_apart() -> None:
    disk, memory = Traffic(), Traffic()
    staged = stage(MemoryRows(X, traffic=disk), [batch(3, 7), batch(7, 1)], traffic=memory)
    staged.read(torch.tensor([7, 7]))
    assert disk.snapshot().count("host") == 3 and memory.snapshot().count("host") == 2


class Remote(MemoryRows):
    """Stages its own way, and can't read anything else."""

    def stage(self, ids: Tensor, *, traffic: Traffic | None = None) -> FeatureStore:
        assert ids.tolist() == sorted(set(ids.tolist()))
        return stage_ids(MemoryRows(self._rows + 1), ids, traffic=traffic)

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        raise AssertionError("read without stage")


def test_a_store_may_stage_its_own_way() -> None:
    for store in (Remote(X), RecordedRows(Remote(X))):
        assert isinstance(store, Stageable)
        links = Traffic()
        staged = stage(store, [batch(5, 2), batch(2)], traffic=links)
        assert torch.equal(staged.read(torch.tensor([2, 5])), X[[2, 5]] + 1)
        assert links.snapshot().count("host") == 2
    assert [ids.tolist() for ids in store.trace] == [[2, 5]]  # pyright: ignore[reportAttributeAccessIssue]


def test_what_is_no_window_is_refused() -> None:
    with pytest.raises(TypeError, match=r"an item of window is a list; pass batches or pairs \(step, batch\)"):
        stage(X, [[batch(1)]])  # type: ignore[list-item]
    with pytest.raises(IndexError, match="node_ids contains 40"):
        stage(X, [batch(1, 40)])
    with pytest.raises(ValueError, match="require a gradient can't be staged"):
        stage(X.clone().requires_grad_(), [batch(1)])


def test_windows_group_items_lazily() -> None:
    taken = []
    groups = windows((taken.append(i) or i for i in range(7)), size=3)
    assert taken == []
    assert next(groups) == [0, 1, 2] and taken == [0, 1, 2]
    assert list(groups) == [[3, 4, 5], [6]] and list(windows([], size=2)) == []
    with pytest.raises(ValueError, match="size is 0"):
        windows([], size=0)
