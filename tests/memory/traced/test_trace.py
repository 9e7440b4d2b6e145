"""Allocation traces peak where the memory meter does, also when replayed with sizes that were not recorded."""

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

import workbench as wb
from workbench.advisor.work import _CountBytes, step_work
from workbench.memory.analytic.layers import _OutputSizes, _probe
from workbench.memory.traced.dry_run import AllocationProgram, AllocationRecorder, AllocationTrace, DryRun
from workbench.meter.peak import PeakMeter


def record(work: Callable[[], object], device_type: str = "cpu") -> AllocationTrace:
    recorder = AllocationRecorder(device_type)
    recorder.start()
    try:
        recorder.start_phase("all", "made")
        work()
        return recorder.trace()
    finally:
        recorder.stop()


def measured(work: Callable[[], object]) -> int:
    with PeakMeter() as meter:
        work()
    return meter.peak_bytes


def peak(trace: AllocationTrace, nbytes: np.ndarray | None = None) -> int:
    peaks = trace.program.replay(trace.nbytes if nbytes is None else nbytes)
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
    """Operators whose backward pass autograd runs in place on tensors that only it references."""
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
def test_a_trace_peaks_where_the_meter_does(work_of: Callable[[int], Callable[[], object]], rows: int) -> None:
    work = work_of(rows)
    assert peak(record(work)) == measured(work) > 0


@pytest.mark.parametrize("work_of", WORKS)
def test_a_replay_at_other_sizes_peaks_where_the_meter_does(work_of: Callable[[int], Callable[[], object]]) -> None:
    small, middle, large = (record(work_of(rows)) for rows in (128, 256, 4096))
    assert small.program == middle.program == large.program
    slope = (middle.nbytes - small.nbytes) // 128
    assert peak(small, small.nbytes + slope * (4096 - 128)) == measured(work_of(4096))


def test_phases_terms_and_rounding_by_hand() -> None:
    """Storages 0 and 1 are allocated, 0 is freed; in the second phase 2 is allocated before 1 is freed."""
    program = AllocationProgram((0, 1, 0, 2, 1), ("a", "b", "a"), (("first", 0), ("second", 3)))
    peaks = program.replay(np.array([513, 512, 1]))
    assert peaks == {"first": {"a": 1024, "b": 512}, "second": {"a": 512, "b": 512}}
    assert program.replay(np.array([-5, 0, 0])) == {"first": {"a": 0, "b": 0}, "second": {"a": 0, "b": 0}}


def test_a_phase_starts_with_the_live_bytes() -> None:
    program = AllocationProgram((0, 0), ("a",), (("first", 0), ("second", 1), ("third", 2)))
    assert program.replay(np.array([512])) == {"first": {"a": 512}, "second": {"a": 512}, "third": {"a": 0}}


def test_gradients_have_a_term_of_their_own_and_earlier_storages_do_not_count() -> None:
    recorder, linear, earlier = AllocationRecorder(), nn.Linear(256, 4), [torch.ones(300)]
    recorder.start()
    try:
        recorder.start_phase("step", "made")
        linear(torch.ones(8, 256)).sum().backward()
        earlier.clear()
        recorder.set_term(linear.weight.grad, "gradients")
        recorder.set_term(None, "gradients")
        trace = recorder.trace()
    finally:
        recorder.stop()
    gradient_bytes = [n for n, term in zip(trace.nbytes, trace.program.terms, strict=True) if term == "gradients"]
    assert gradient_bytes == [4 * 256 * 4]
    assert 300 * 4 not in trace.nbytes


def test_only_storages_of_the_device_type_are_recorded() -> None:
    """Meta tensors have no memory, but the sizes and lifetimes that they would have on a device."""

    elsewhere = network(1000, "meta")

    def both() -> Tensor:
        on_host = torch.ones(5000)
        elsewhere()
        return on_host

    trace = record(both, "meta")
    assert peak(trace) == peak(record(network(1000)))
    assert 4 * 5000 not in trace.nbytes


@pytest.mark.parametrize("moment", ["start", "stop"])
def test_an_interrupt_of_a_dry_run_leaves_no_dispatch_mode(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """It arrives when the recorder has just begun to record, or is about to end."""
    original = getattr(AllocationRecorder, moment)

    def interrupted(recorder: AllocationRecorder) -> None:
        if moment == "start":
            original(recorder)
        os.kill(os.getpid(), signal.SIGINT)
        if moment == "stop":
            original(recorder)

    graph = wb.Graph.from_edges([0, 1, 2], [1, 2, 0])
    batch = wb.NeighborSampler([2]).sample(graph, torch.tensor([0, 1]))
    model = wb.build_model("gcn", in_dim=3, hidden_dim=4, out_dim=2, num_layers=1)
    run = DryRun(model, optimizer="adam", in_dim=3, loss_fn=torch.nn.functional.cross_entropy)
    monkeypatch.setattr(AllocationRecorder, moment, interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        run.warm_up(batch)
    assert caught.traceback  # keeps the frames of the run alive
    assert not _get_current_dispatch_mode_stack()


@pytest.mark.parametrize("counting", [_OutputSizes, _CountBytes])
def test_an_interrupt_of_a_count_of_operators_leaves_no_dispatch_mode(
    monkeypatch: pytest.MonkeyPatch, counting: type[TorchDispatchMode]
) -> None:
    enter = counting.__enter__

    def interrupted(mode: TorchDispatchMode) -> Any:
        entered = enter(mode)
        os.kill(os.getpid(), signal.SIGINT)
        return entered

    graph = wb.Graph.from_edges([0, 1, 2], [1, 2, 0])
    batch = wb.NeighborSampler([2]).sample(graph, torch.tensor([0, 1]))
    model = wb.build_model("gcn", in_dim=3, hidden_dim=4, out_dim=2, num_layers=1)
    monkeypatch.setattr(counting, "__enter__", interrupted)
    loss = torch.nn.functional.cross_entropy
    counts: dict[type[TorchDispatchMode], Callable[[], object]] = {
        _OutputSizes: lambda: _probe(3, 4, 4, 1, 1),
        _CountBytes: lambda: step_work(model, batch, torch.ones(3, 3), torch.zeros(3).long(), loss),
    }
    with pytest.raises(KeyboardInterrupt) as caught:
        counts[counting]()
    assert caught.traceback
    assert not _get_current_dispatch_mode_stack()
