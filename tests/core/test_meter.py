"""The meter against the CPU allocator's own events, and against cases counted by hand."""

import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from tests.strategies import random_graph, random_minibatch
from workbench.core.cpu_gauge import ALLOCATION_BYTES, CpuGauge, rounded_bytes
from workbench.core.limit import limit_memory
from workbench.core.meter import PeakMeter, measure_peak
from workbench.kernels.threads import get_num_threads, run_tasks, set_num_threads
from workbench.nn.model import MODEL_KINDS, build_model

KIB = 1024


def kib(count: int) -> Tensor:
    return torch.empty(count * KIB, dtype=torch.uint8)


def allocator_peak(setup: Callable[[], Callable[[], object]]) -> int:
    """Peak bytes of a call above entry by the allocator's events, each rounded as storages are.

    `setup` runs within the profile: the allocator doesn't report the end of what was allocated before.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        fn = setup()
        gc.collect()
        with record_function("entry"):
            pass
        fn()
    results: Any = prof.profiler and prof.profiler.kineto_results
    live, entry, peak = 0, 0, 0
    for event in sorted(results.events(), key=lambda e: e.start_ns()):
        if event.name() == "entry":
            entry = peak = live
        elif event.name() == "[memory]":
            nbytes = event.nbytes()
            live += rounded_bytes(nbytes) if nbytes > 0 else -rounded_bytes(-nbytes)
            peak = max(peak, live)
    return peak - entry


def assert_equals_allocator(setup: Callable[[], Callable[[], object]], scratch: float = 0.0) -> None:
    """Equal but for a few scalars, and a share of workspace inside operators (only where a kernel is known for it)."""
    setup()()
    expected, measured = allocator_peak(setup), measure_peak(setup())
    assert expected > 100 * KIB
    assert (1 - scratch) * expected - 4 * ALLOCATION_BYTES <= measured <= expected + 4 * ALLOCATION_BYTES


def graph(nodes: int = 500, edges: int = 4000, width: int = 32) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(nodes, width), torch.randint(0, nodes, (edges,)), torch.randint(0, nodes, (edges,))


def linear_adam() -> Callable[[], object]:
    x, _, _ = graph()
    y = torch.randint(0, 7, (500,))
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 7))
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    step()
    return step


def gathered(
    gather: Callable[[Tensor, Tensor], Tensor], add: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Callable[[], Callable[[], object]]:
    """A layer of plain torch whose sources need a gradient, and are used twice."""

    def setup() -> Callable[[], object]:
        x, src, dst = graph()
        weight = nn.Parameter(torch.randn(32, 32))

        def step() -> None:
            h = x @ weight
            messages = gather(h, src)  # kept, so that the peak is where their gradient is added up by source
            (add(torch.zeros_like(h), dst, messages) + h).relu().square().sum().backward()
            weight.grad = None

        return step

    return setup


def summed_into_a_view() -> Callable[[], object]:
    """Autograd adds to a gradient in place, but not to a view, whose base holds the storage too."""
    x, _, _ = graph()
    weight = nn.Parameter(torch.randn(32, 32))

    def step() -> None:
        h = x @ weight
        ((h * 2).sum() + (h.view(500, 1, 32) * 3).sum()).backward()
        weight.grad = None

    return step


def backward_only() -> Callable[[], object]:
    """What the forward pass saved is freed as the backward pass goes."""
    x, src, dst = graph()
    weight = nn.Parameter(torch.randn(32, 32))
    h = (x @ weight).tanh()
    losses = [h.index_select(0, src).exp().index_select(0, dst).square().sum()]
    del h
    return lambda: losses.pop().backward()


def library_step(kind: str) -> Callable[[], Callable[[], object]]:
    def setup() -> Callable[[], object]:
        torch.manual_seed(0)
        mb = random_minibatch(random_graph(400, 3200, edge_weight=torch.float32), fanouts=(6, 4), num_seeds=100)
        model = build_model(kind, in_dim=32, hidden_dim=32, out_dim=5, num_layers=2, dropout=0.5)
        optimizer = torch.optim.Adam(model.parameters())
        x, y = torch.randn(400, 32), torch.arange(400) % 5

        def step() -> Tensor:
            h = model(mb.blocks, x[mb.node_ids], node_ids=mb.node_ids)
            optimizer.zero_grad()
            F.cross_entropy(h, y[mb.seeds]).backward()
            optimizer.step()
            return h

        step()
        return step

    return setup


def by_index(h: Tensor, src: Tensor) -> Tensor:
    return h[src]


def by_gather(h: Tensor, src: Tensor) -> Tensor:
    return h.gather(0, src[:, None].expand(-1, h.shape[1]))


def by_select(h: Tensor, src: Tensor) -> Tensor:
    return h.index_select(0, src)


@pytest.mark.parametrize("gather", [by_select, by_index, by_gather])
@pytest.mark.parametrize("add", [lambda z, i, m: z.index_add(0, i, m), lambda z, i, m: z.index_add_(0, i, m)])
def test_plain_torch_layers_equal_the_allocator(gather: Callable, add: Callable) -> None:
    assert_equals_allocator(gathered(gather, add))


@pytest.mark.parametrize("setup", [linear_adam, backward_only, summed_into_a_view])
def test_steps_equal_the_allocator(setup: Callable[[], Callable[[], object]]) -> None:
    assert_equals_allocator(setup)


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_layers_of_the_library_equal_the_allocator(kind: str) -> None:
    assert_equals_allocator(library_step(kind), scratch=0.1 if kind == "sage-lstm" else 0.0)


def test_rounding_is_the_allocators_grain() -> None:
    held = []
    assert measure_peak(lambda: held.extend(torch.empty(1) for _ in range(100))) == 100 * ALLOCATION_BYTES
    assert measure_peak(lambda: torch.empty(0)) == 0
    assert rounded_bytes(513) == 2 * ALLOCATION_BYTES


def test_freed_room_is_used_again() -> None:
    def fn() -> None:
        a = kib(8)
        del a
        b, c = kib(4), kib(3)
        del b
        kib(6)
        del c

    assert measure_peak(fn) == 9 * KIB


def test_views_and_in_place_operators_take_nothing() -> None:
    def fn() -> None:
        a = kib(4)
        a[: 2 * KIB].view(2, KIB).t().add_(1)
        torch.add(a, a, out=a)

    assert measure_peak(fn) == 4 * KIB


def test_what_was_alive_at_entry_counts_when_freed() -> None:
    held = [kib(8), kib(1)]
    with PeakMeter() as meter:
        meter.mark("after")
        held.clear()
        held.append(kib(6))
        assert meter.peak_bytes == 0
        held.append(kib(6))
    assert meter.peak_bytes == 3 * KIB


def test_gradients_of_before_count_when_dropped_untouched() -> None:
    p = nn.Parameter(torch.ones(1024))
    p.sum().backward()  # a gradient that Python has not met

    def fn() -> None:
        p.grad = None
        kib(4)

    assert measure_peak(fn) == 0


def test_growth_takes_the_new_room_before_it_frees_the_old() -> None:
    a = kib(4)
    assert measure_peak(lambda: a.resize_(8 * KIB)) == 8 * KIB
    assert measure_peak(lambda: (a.resize_(2 * KIB), kib(1))) == KIB  # a smaller shape keeps its room


def test_out_argument_that_grows_is_counted() -> None:
    x, out = torch.ones(1024), torch.empty(0)
    assert measure_peak(lambda: torch.add(x, x, out=out)) == 4 * KIB


def test_storage_that_is_replaced_is_freed() -> None:
    a = kib(4)

    def fn() -> None:
        a.set_(kib(2))  # pyright: ignore[reportArgumentType, reportCallIssue]
        kib(3)

    assert measure_peak(fn) == 2 * KIB
    assert measure_peak(lambda: torch.empty(0).set_(torch.UntypedStorage(3 * KIB))) == 3 * KIB


class _Buffers(torch.autograd.Function):
    """Scratch in both passes, as a kernel takes it."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        torch.empty(8 * KIB, dtype=torch.uint8).numpy()
        return x.clone()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        torch.empty(32 * KIB, dtype=torch.uint8).numpy()
        return grad.clone()


def test_scratch_of_custom_functions_is_seen_in_both_passes() -> None:
    x = torch.ones(256, requires_grad=True)  # 1 KiB
    with PeakMeter() as meter:
        meter.mark("forward")
        y = _Buffers.apply(x)
        meter.mark("backward")
        y.backward(torch.ones(256))  # pyright: ignore[reportAttributeAccessIssue]
    assert meter.phase_peak_bytes == {"forward": 8 * KIB, "backward": 34 * KIB}
    assert meter.peak_bytes == 34 * KIB


def test_phases_go_on_when_marked_again() -> None:
    with PeakMeter() as meter:
        for size in (2, 5, 3):
            meter.mark("odd")
            kib(size)
            meter.mark("even")
            kib(2 * size)
    assert meter.phase_peak_bytes == {"odd": 5 * KIB, "even": 10 * KIB}


def test_memory_of_numpy_is_not_the_allocators() -> None:
    def fn() -> None:
        a = torch.from_numpy(np.ones(4 * KIB, dtype=np.uint8))
        a.add(1)
        del a
        kib(4)

    assert measure_peak(fn) == 4 * KIB
    assert measure_peak(lambda: torch.tensor([0] * KIB)) == 8 * KIB


def test_parts_of_sparse_tensors_are_counted() -> None:
    indices, values = torch.arange(512).expand(2, -1).contiguous(), torch.ones(512)
    coo = measure_peak(lambda: torch.sparse_coo_tensor(indices, values, (512, 512), check_invariants=False).coalesce())
    assert coo >= 8 * KIB + 2 * KIB
    csr = torch.sparse_coo_tensor(indices, values, (512, 512), check_invariants=False).coalesce()
    assert measure_peak(csr.clone) == 8 * KIB + 2 * KIB


def test_what_another_thread_frees_is_freed() -> None:
    held = [kib(8)]

    def fn() -> None:
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        kib(9)

    assert measure_peak(fn) == KIB


@pytest.mark.parametrize("threads", [1, 3])
def test_what_the_kernels_threads_make_is_seen(threads: int) -> None:
    made: list[Tensor] = []
    before = get_num_threads()
    set_num_threads(threads)
    try:
        peak = measure_peak(lambda: run_tasks([lambda: made.append(kib(2)) for _ in range(10)]))
    finally:
        set_num_threads(before)
    assert peak == 20 * KIB


def test_meters_nest() -> None:
    held = []
    with PeakMeter() as outer:
        held.append(kib(4))
        with PeakMeter() as inner:
            kib(3)
        held.append(kib(1))
    assert (outer.peak_bytes, inner.peak_bytes) == (7 * KIB, 3 * KIB)


def test_nested_meters_see_through_the_engines_caution() -> None:
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


def test_garbage_of_the_past_makes_no_room() -> None:
    cycle: list[object] = [kib(8)]
    cycle.append(cycle)
    del cycle
    assert measure_peak(lambda: (gc.collect(), kib(4))) == 4 * KIB


def test_the_meter_keeps_nothing_alive() -> None:
    made: list[weakref.ref] = []

    def fn() -> Tensor:
        a = kib(4)
        made.append(weakref.ref(a))
        return a

    with PeakMeter() as meter:
        fn()
        made.append(weakref.ref(meter._gauge))
    assert all(ref() is None for ref in made)


def test_metered_gradients_are_the_same() -> None:
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


def test_other_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="cpu or cuda"):
        measure_peak(lambda: None, device="meta")


class _Allocator:
    """Stands in for CUDA's caching allocator: counters that are shared and reset."""

    def __init__(self) -> None:
        self.live = self.peak = 1000

    def take(self, nbytes: int) -> None:
        self.live += nbytes
        self.peak = max(self.peak, self.live)

    def reset(self) -> None:
        self.peak = self.live


def test_cuda_counters_are_shared_by_nested_meters(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = _Allocator()
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: allocator.live)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: allocator.peak)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: allocator.reset())
    allocator.take(500)
    allocator.take(-500)
    with PeakMeter("cuda:0") as outer:
        outer.mark("before")
        allocator.take(70)
        allocator.take(-60)
        outer.mark("within")
        with PeakMeter("cuda:0") as inner:
            allocator.take(50)
            allocator.take(-50)
        outer.mark("after")
        allocator.take(-20)
    assert inner.peak_bytes == 50
    assert outer.phase_peak_bytes == {"before": 70, "within": 60, "after": 10}
    assert outer.peak_bytes == 70


@pytest.mark.parametrize("device", ["cpu", "cuda"][: 1 + torch.cuda.is_available()])
def test_both_devices_count_alike(device: str) -> None:
    held = [torch.empty(8 * KIB, dtype=torch.uint8, device=device)]

    def fn() -> None:
        held.clear()
        torch.empty(9 * KIB, dtype=torch.uint8, device=device)

    assert measure_peak(fn, device=device) == KIB


def test_a_meter_is_entered_once_at_a_time() -> None:
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
@pytest.mark.parametrize("moment", ["start", "take", "stop"])
def test_an_interrupt_at_entry_or_exit_leaves_no_mode_behind(
    monkeypatch: pytest.MonkeyPatch, block: Callable[[], Any], moment: str
) -> None:
    original = getattr(CpuGauge, moment)

    def interrupted(gauge: CpuGauge) -> Any:
        result = original(gauge)
        os.kill(os.getpid(), signal.SIGINT)
        return result

    monkeypatch.setattr(CpuGauge, moment, interrupted)
    with pytest.raises(KeyboardInterrupt) as caught, block() as meter:  # noqa: PT012
        if moment == "take":
            os.kill(os.getpid(), signal.SIGINT) if meter is None else meter.peak_bytes
    assert caught.traceback  # which keeps the frames of the block
    assert not _get_current_dispatch_mode_stack() and not gc.get_freeze_count()


def test_what_a_failed_backward_left_waiting_is_freed_before_the_meter_starts() -> None:
    """Autograd keeps the tasks of a failed backward pass until it next runs; freed in the block they would count."""

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
