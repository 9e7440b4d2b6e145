"""Allocated bytes compared with cases counted by hand."""

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from workbench.meter.allocated import measure_allocated
from workbench.meter.peak import measure_peak

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
