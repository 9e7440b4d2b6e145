"""Finding all live tensors."""

import gc

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from workbench.meter.allocation_tracker import AllocationTracker, _live_tensors, live_storages, measure_allocated
from workbench.meter.peak import measure_peak


class Named(torch.nn.Parameter):
    """A subclass of a subclass."""


def test_all_tensors_are_found_whatever_their_class() -> None:
    layer = torch.nn.Linear(3, 2)
    kept = [torch.zeros(3), Named(torch.ones(2)), torch.zeros(4, requires_grad=True) * 2, [torch.ones(1)], layer.weight]
    expected = {id(obj) for obj in gc.get_objects() if issubclass(type(obj), Tensor)}
    found = {id(tensor) for tensor in _live_tensors()}
    assert found == expected
    assert {id(tensor) for tensor in kept if isinstance(tensor, Tensor)} <= found


def test_gradients_of_leaves_are_found() -> None:
    layer = torch.nn.Linear(3, 2)
    layer(torch.ones(1, 3)).sum().backward()
    assert layer.weight.grad is not None
    grad = layer.weight.grad.untyped_storage()._cdata
    assert grad in {storage._cdata for storage in live_storages()}


def test_tensors_whose_class_is_hidden_are_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = torch.zeros(3)
    monkeypatch.setattr(gc, "get_referrers", lambda *_: [])
    assert any(tensor is kept for tensor in _live_tensors())


KIB = 1024


def test_freed_bytes_count_as_often_as_they_are_allocated() -> None:
    held = torch.zeros(3 * KIB, dtype=torch.uint8)

    def call() -> None:
        for _ in range(4):
            torch.empty(2 * KIB, dtype=torch.uint8)
        held.add_(1)
        torch.add(held, 1, out=held)
        held.view(-1, 2)

    assert measure_allocated(call) == 4 * 2 * KIB
    assert measure_peak(call) == 2 * KIB


def test_an_error_ends_the_measurement() -> None:
    with pytest.raises(ZeroDivisionError):
        measure_allocated(lambda: 1 // 0)
    assert not _get_current_dispatch_mode_stack()


def test_a_storage_at_the_address_of_a_freed_one_stays_tracked():
    tracker = AllocationTracker()
    first, second = torch.UntypedStorage(1024), torch.UntypedStorage(2048)
    tracker._add(first)
    freed = tracker._tracked.pop(first._cdata)
    freed.key = second._cdata  # as if the second storage had been allocated where the first was
    del first
    tracker._add(second)
    assert tracker._live == 1024 + 2048
    tracker._process_pending()
    assert tracker._live == 2048
    del second
    tracker._process_pending()
    assert tracker._live == 0
