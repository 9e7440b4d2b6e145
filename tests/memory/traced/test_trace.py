"""Recordings of allocations: they peak as the meter says, also when gone through at sizes that were not recorded."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from workbench.core.meter import PeakMeter
from workbench.memory.traced.trace import AllocationTrace, Recording, Script


def record(work: Callable[[], object], device_type: str = "cpu") -> Recording:
    trace = AllocationTrace(device_type)
    trace.start()
    try:
        trace.enter("all", "made")
        work()
        return trace.recording()
    finally:
        trace.stop()


def measured(work: Callable[[], object]) -> int:
    with PeakMeter() as meter:
        work()
    return meter.peak_bytes


def peak(recording: Recording, nbytes: np.ndarray | None = None) -> int:
    peaks = recording.script.replay(recording.nbytes if nbytes is None else nbytes)
    return max(sum(terms.values()) for terms in peaks.values())


def network(rows: int, device: str = "cpu") -> Callable[[], object]:
    """A step in which autograd adds up two gradients of an activation, which it does in place without a meter."""
    weight = torch.ones(16, 16, device=device, requires_grad=True)

    def work() -> None:
        x = torch.ones(rows, 16, device=device)
        h = (x @ weight).tanh()
        (h.exp().sum() + (h * x).sum() + h[: rows // 2].sum()).backward()
        weight.grad = None

    return work


def scattered(rows: int) -> Callable[[], object]:
    """Operators of which autograd works in place on what it alone holds."""
    weight = torch.ones(rows, 8, requires_grad=True)

    def work() -> None:
        index = torch.arange(rows).flip(0)
        h = weight.index_select(0, index) + weight[index]
        h.index_add(0, index, h * 2).masked_fill(h > 3, 0).sum().backward()
        weight.grad = None

    return work


def resized(rows: int) -> Callable[[], object]:
    def work() -> None:
        out = torch.empty(0)
        for count in (rows, 3 * rows):
            out.resize_(count)
        torch.ones(rows)

    return work


WORKS = (network, scattered, resized)


@pytest.mark.parametrize("work_of", WORKS)
@pytest.mark.parametrize("rows", [1, 100, 1000])
def test_a_recording_peaks_as_the_meter_says(work_of: Callable[[int], Callable[[], object]], rows: int) -> None:
    work = work_of(rows)
    assert peak(record(work)) == measured(work) > 0


@pytest.mark.parametrize("work_of", WORKS)
def test_an_order_peaks_at_other_sizes_as_work_of_these_sizes(work_of: Callable[[int], Callable[[], object]]) -> None:
    small, middle, large = (record(work_of(rows)) for rows in (128, 256, 4096))
    assert small.script == middle.script == large.script
    slope = (middle.nbytes - small.nbytes) // 128
    assert peak(small, small.nbytes + slope * (4096 - 128)) == measured(work_of(4096))


def test_phases_terms_and_rounding_by_hand() -> None:
    """Storages 0 and 1 are made, 0 is freed; in the second phase 2 is made before 1 is freed."""
    script = Script((0, 1, 0, 2, 1), ("a", "b", "a"), (("first", 0), ("second", 3)))
    peaks = script.replay(np.array([513, 512, 1]))
    assert peaks == {"first": {"a": 1024, "b": 512}, "second": {"a": 512, "b": 512}}
    assert script.replay(np.array([-5, 0, 0])) == {"first": {"a": 0, "b": 0}, "second": {"a": 0, "b": 0}}


def test_a_phase_begins_with_what_there_is() -> None:
    script = Script((0, 0), ("a",), (("first", 0), ("second", 1), ("third", 2)))
    assert script.replay(np.array([512])) == {"first": {"a": 512}, "second": {"a": 512}, "third": {"a": 0}}


def test_gradients_are_booked_and_what_was_there_is_not_seen() -> None:
    trace, linear, there = AllocationTrace(), nn.Linear(256, 4), [torch.ones(300)]
    trace.start()
    try:
        trace.enter("step", "made")
        linear(torch.ones(8, 256)).sum().backward()
        there.clear()
        trace.book(linear.weight.grad, "gradients")
        trace.book(None, "gradients")
        recording = trace.recording()
    finally:
        trace.stop()
    booked = [n for n, term in zip(recording.nbytes, recording.script.terms, strict=True) if term == "gradients"]
    assert booked == [4 * 256 * 4]
    assert 300 * 4 not in recording.nbytes


def test_storages_of_another_kind_of_device_are_told_apart() -> None:
    """Without memory, but with the sizes and ends that they would have."""

    elsewhere = network(1000, "meta")

    def both() -> Tensor:
        on_host = torch.ones(5000)
        elsewhere()
        return on_host

    recording = record(both, "meta")
    assert peak(recording) == peak(record(network(1000)))
    assert 4 * 5000 not in recording.nbytes
