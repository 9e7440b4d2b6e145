"""The meter compared with the CPU allocator's events and with cases counted by hand."""

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

from tests.devices import CUDA
from tests.strategies import random_graph, random_minibatch
from workbench.kernels.threads import get_num_threads, run_tasks, set_num_threads
from workbench.meter.allocation_tracker import AllocationTracker
from workbench.meter.limit import limit_memory
from workbench.meter.peak import PeakMeter, measure_peak
from workbench.meter.storages import ALLOCATION_BYTES, rounded_bytes
from workbench.nn.model import MODEL_KINDS, build_model

KIB = 1024


def kib(count: int) -> Tensor:
    return torch.empty(count * KIB, dtype=torch.uint8)


def allocator_peak(setup: Callable[[], Callable[[], object]]) -> int:
    """Return the peak bytes of a call relative to its entry, from the allocator's events, rounded as storages are.

    `setup` runs inside the profile, because the allocator doesn't report when older allocations are freed.
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
    """Assert equal peaks, up to a few scalars and the fraction `scratch` of workspace inside operators."""
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
    """Return the setup of a layer in plain torch whose sources require a gradient and are used twice."""

    def setup() -> Callable[[], object]:
        x, src, dst = graph()
        weight = nn.Parameter(torch.randn(32, 32))

        def step() -> None:
            h = x @ weight
            messages = gather(h, src)  # kept alive, so that the peak is where their gradient is summed by source
            (add(torch.zeros_like(h), dst, messages) + h).relu().square().sum().backward()
            weight.grad = None

        return step

    return setup


def summed_into_a_view() -> Callable[[], object]:
    """Return a step in which autograd can't add to a gradient in place, because it is a view of a base."""
    x, _, _ = graph()
    weight = nn.Parameter(torch.randn(32, 32))

    def step() -> None:
        h = x @ weight
        ((h * 2).sum() + (h.view(500, 1, 32) * 3).sum()).backward()
        weight.grad = None

    return step


def backward_only() -> Callable[[], object]:
    """Return a backward pass, which frees the tensors saved by the forward pass as it proceeds."""
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


def test_storages_are_rounded_up_as_the_allocator_does() -> None:
    held = []
    assert measure_peak(lambda: held.extend(torch.empty(1) for _ in range(100))) == 100 * ALLOCATION_BYTES
    assert measure_peak(lambda: torch.empty(0)) == 0
    assert rounded_bytes(513) == 2 * ALLOCATION_BYTES


def test_freed_memory_is_reused() -> None:
    def fn() -> None:
        a = kib(8)
        del a
        b, c = kib(4), kib(3)
        del b
        kib(6)
        del c

    assert measure_peak(fn) == 9 * KIB


def test_views_and_in_place_operators_allocate_nothing() -> None:
    def fn() -> None:
        a = kib(4)
        a[: 2 * KIB].view(2, KIB).t().add_(1)
        torch.add(a, a, out=a)

    assert measure_peak(fn) == 4 * KIB


def test_memory_alive_at_entry_counts_when_freed() -> None:
    held = [kib(8), kib(1)]
    with PeakMeter() as meter:
        meter.mark("after")
        held.clear()
        held.append(kib(6))
        assert meter.peak_bytes == 0
        held.append(kib(6))
    assert meter.peak_bytes == 3 * KIB


def test_gradients_alive_at_entry_count_when_freed() -> None:
    p = nn.Parameter(torch.ones(1024))
    p.sum().backward()  # a gradient without a Python object

    def fn() -> None:
        p.grad = None
        kib(4)

    assert measure_peak(fn) == 0


def test_growth_allocates_before_it_frees() -> None:
    a = kib(4)
    assert measure_peak(lambda: a.resize_(8 * KIB)) == 8 * KIB
    assert measure_peak(lambda: (a.resize_(2 * KIB), kib(1))) == KIB  # shrinking does not free


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
    """Allocates scratch buffers in both passes, as a kernel does."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        torch.empty(8 * KIB, dtype=torch.uint8).numpy()
        return x.clone()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        torch.empty(32 * KIB, dtype=torch.uint8).numpy()
        return grad.clone()


def test_scratch_of_custom_functions_is_counted_in_both_passes() -> None:
    x = torch.ones(256, requires_grad=True)  # 1 KiB
    with PeakMeter() as meter:
        meter.mark("forward")
        y = _Buffers.apply(x)
        meter.mark("backward")
        y.backward(torch.ones(256))  # pyright: ignore[reportAttributeAccessIssue]
    assert meter.phase_peak_bytes == {"forward": 8 * KIB, "backward": 34 * KIB}
    assert meter.peak_bytes == 34 * KIB


def test_phases_resume_when_marked_again() -> None:
    with PeakMeter() as meter:
        for size in (2, 5, 3):
            meter.mark("odd")
            kib(size)
            meter.mark("even")
            kib(2 * size)
    assert meter.phase_peak_bytes == {"odd": 5 * KIB, "even": 10 * KIB}


def test_numpy_arrays_are_not_counted() -> None:
    def fn() -> None:
        a = torch.from_numpy(np.ones(4 * KIB, dtype=np.uint8))
        a.add(1)
        del a
        kib(4)

    assert measure_peak(fn) == 4 * KIB
    assert measure_peak(lambda: torch.tensor([0] * KIB)) == 8 * KIB


def test_components_of_sparse_tensors_are_counted() -> None:
    indices, values = torch.arange(512).expand(2, -1).contiguous(), torch.ones(512)
    coo = measure_peak(lambda: torch.sparse_coo_tensor(indices, values, (512, 512), check_invariants=False).coalesce())
    assert coo >= 8 * KIB + 2 * KIB
    csr = torch.sparse_coo_tensor(indices, values, (512, 512), check_invariants=False).coalesce()
    assert measure_peak(csr.clone) == 8 * KIB + 2 * KIB


def test_a_lazy_parameter_anywhere_in_the_process_is_no_obstacle() -> None:
    lazy = nn.LazyLinear(3)
    assert measure_peak(lambda: torch.ones(1024)) == 4096
    assert nn.parameter.is_lazy(lazy.weight)


def test_memory_freed_by_another_thread_counts() -> None:
    held = [kib(8)]

    def fn() -> None:
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        kib(9)

    assert measure_peak(fn) == KIB


@pytest.mark.parametrize("threads", [1, 3])
def test_allocations_of_kernel_threads_are_counted(threads: int) -> None:
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
