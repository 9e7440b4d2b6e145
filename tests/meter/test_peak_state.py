"""What a meter leaves behind, nested meters, and meters of other devices."""

import gc
import os
import signal
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from tests.devices import CUDA
from tests.meter.tensors import KIB, by_select, gathered, graph, kib
from workbench.meter.allocation_tracker import AllocationTracker
from workbench.meter.limit import limit_memory
from workbench.meter.peak import PeakMeter, measure_peak


def test_meters_nest() -> None:
    held = []
    with PeakMeter() as outer:
        held.append(kib(4))
        with PeakMeter() as inner:
            kib(3)
        held.append(kib(1))
    assert (outer.peak_bytes, inner.peak_bytes) == (7 * KIB, 3 * KIB)


def test_nested_meters_ignore_copies_caused_by_the_dispatch_mode() -> None:
    step = gathered(by_select, lambda z, i, m: z.index_add_(0, i, m))()
    alone = measure_peak(step)
    with PeakMeter() as outer, PeakMeter() as inner:
        step()
    assert outer.peak_bytes == inner.peak_bytes == alone


def test_an_exception_leaves_no_residue() -> None:
    modes = len(_get_current_dispatch_mode_stack())
    with pytest.raises(ZeroDivisionError):
        measure_peak(lambda: (kib(4), 1 // 0))
    assert len(_get_current_dispatch_mode_stack()) == modes
    assert measure_peak(lambda: kib(2)) == 2 * KIB


def test_a_meter_can_be_used_again() -> None:
    meter = PeakMeter()
    for size in (4, 2):
        with meter:
            kib(size)
        assert meter.peak_bytes == size * KIB


def test_old_garbage_is_not_collected_in_the_block() -> None:
    cycle: list[object] = [kib(8)]
    cycle.append(cycle)
    del cycle
    assert measure_peak(lambda: (gc.collect(), kib(4))) == 4 * KIB


@pytest.mark.parametrize("limited", [False, True])
def test_garbage_is_not_collected_between_the_count_and_the_freeze(
    limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle: list[object] = [kib(8)]
    cycle.append(cycle)
    del cycle
    freeze = gc.freeze
    monkeypatch.setattr(gc, "freeze", lambda: (gc.isenabled() and gc.collect(), freeze()))  # as if it were due just now
    with limit_memory(4 * KIB) if limited else PeakMeter() as meter:
        kib(4)
        if limited:
            with pytest.raises(torch.OutOfMemoryError, match="while 0 B"):
                kib(5)
    assert meter is None or meter.peak_bytes == 4 * KIB
    assert gc.isenabled()


def test_the_meter_keeps_nothing_alive() -> None:
    made: list[weakref.ref] = []

    def fn() -> Tensor:
        a = kib(4)
        made.append(weakref.ref(a))
        return a

    with PeakMeter() as meter:
        fn()
        made.append(weakref.ref(meter._counter))
    assert all(ref() is None for ref in made)


def test_gradients_are_unchanged() -> None:
    x, src, dst = graph()
    x = x.double()
    grads = []
    weight = nn.Parameter(torch.randn(32, 32, dtype=torch.float64))

    def fn() -> None:
        h = x @ weight
        (torch.zeros_like(h).index_add_(0, dst, h[src]) + h).relu().square().sum().backward()
        grads.append(weight.grad)
        weight.grad = None

    fn()
    measure_peak(fn)
    torch.testing.assert_close(grads[0], grads[1])


def test_other_devices_are_rejected() -> None:
    with pytest.raises(ValueError, match="cpu or cuda"):
        measure_peak(lambda: None, device="meta")


class _Allocator:
    """Replaces CUDA's caching allocator, whose peak counter is shared and reset."""

    def __init__(self) -> None:
        self.live = self.peak = 1000

    def allocate(self, nbytes: int) -> None:
        self.live += nbytes
        self.peak = max(self.peak, self.live)

    def reset(self) -> None:
        self.peak = self.live


def test_cuda_counters_are_shared_by_nested_meters(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = _Allocator()
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: allocator.live)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: allocator.peak)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: allocator.reset())
    allocator.allocate(500)
    allocator.allocate(-500)
    with PeakMeter("cuda:0") as outer:
        outer.mark("before")
        allocator.allocate(70)
        allocator.allocate(-60)
        outer.mark("within")
        with PeakMeter("cuda:0") as inner:
            allocator.allocate(50)
            allocator.allocate(-50)
        outer.mark("after")
        allocator.allocate(-20)
    assert inner.peak_bytes == 50
    assert outer.phase_peak_bytes == {"before": 70, "within": 60, "after": 10}
    assert outer.peak_bytes == 70


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_both_devices_count_alike(device: str) -> None:
    held = [torch.empty(8 * KIB, dtype=torch.uint8, device=device)]

    def fn() -> None:
        held.clear()
        torch.empty(9 * KIB, dtype=torch.uint8, device=device)

    assert measure_peak(fn, device=device) == KIB


def test_a_meter_rejects_nested_entry() -> None:
    meter = PeakMeter()
    with meter:
        with pytest.raises(RuntimeError, match="is measuring already"), meter:
            pass
        held = kib(3)
    assert meter.peak_bytes == held.nbytes
    assert not _get_current_dispatch_mode_stack() and not gc.get_freeze_count()
    with meter:
        kib(5)
    assert meter.peak_bytes == 5 * KIB


@pytest.mark.parametrize("block", [PeakMeter, lambda: limit_memory(1 << 40)])
@pytest.mark.parametrize("moment", ["start", "pop_peak", "stop"])
def test_an_interrupt_at_entry_or_exit_leaves_no_dispatch_mode(
    monkeypatch: pytest.MonkeyPatch, block: Callable[[], Any], moment: str
) -> None:
    original = getattr(AllocationTracker, moment)

    def interrupted(tracker: AllocationTracker) -> Any:
        result = original(tracker)
        os.kill(os.getpid(), signal.SIGINT)
        return result

    monkeypatch.setattr(AllocationTracker, moment, interrupted)
    with pytest.raises(KeyboardInterrupt) as caught, block() as meter:  # noqa: PT012
        if moment == "pop_peak":
            os.kill(os.getpid(), signal.SIGINT) if meter is None else meter.peak_bytes
    assert caught.traceback  # keeps the frames of the block alive
    assert not _get_current_dispatch_mode_stack() and not gc.get_freeze_count()


def test_operators_without_results_allocate_nothing_below_the_level_at_entry() -> None:
    """Freeing what was alive at entry makes live bytes negative; the difference to zero is no allocation."""
    requests: list[int] = []
    held, kept = kib(5), kib(1)
    tracker = AllocationTracker(lambda requested, live: requests.append(requested))
    tracker.start()
    del held
    kept.zero_()
    kib(2)
    tracker.stop()
    assert requests == [2 * KIB]


def test_tasks_of_a_failed_backward_are_freed_before_measuring() -> None:
    """Autograd keeps the tasks of a failed backward pass until its next run; freeing them in the block would count."""

    def fail(grad: Tensor) -> None:
        raise KeyboardInterrupt

    def abandoned() -> None:
        leaf = torch.ones(100 * KIB, requires_grad=True)
        waiting, failing = leaf.sin().exp(), leaf.cos()
        failing.register_hook(fail)
        with pytest.raises(KeyboardInterrupt):
            (waiting + failing).sum().backward()

    abandoned()
    with PeakMeter() as meter:
        torch.zeros((), requires_grad=True).backward()
        meter.mark("afterwards")
        held = kib(3)
    assert meter.phase_peak_bytes["afterwards"] == held.nbytes
