"""The memory limit compared with measured peaks and with cases counted by hand."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from tests.devices import CUDA
from tests.meter.tensors import by_select, gathered
from tests.strategies import random_graph, random_minibatch
from workbench.kernels.threads import get_num_threads, run_tasks, set_num_threads
from workbench.meter.limit import limit_memory
from workbench.meter.peak import PeakMeter, measure_peak
from workbench.nn.model import build_model

KIB = 1024
DEVICES = ["cpu", CUDA]


def kib(count: int) -> Tensor:
    return torch.empty(count * KIB, dtype=torch.uint8)


def test_allocations_beyond_the_limit_are_rejected() -> None:
    with limit_memory(8 * KIB):
        a = kib(5)
        b = kib(3)
        with pytest.raises(torch.OutOfMemoryError, match=r"tried to allocate 512 B while 8.00 KiB of the limit of 8"):
            torch.empty(1, dtype=torch.uint8)
        del a
        kib(5)
    assert b.numel() == 3 * KIB
    kib(99)


def test_a_rejected_result_is_freed_before_the_error_is_raised() -> None:
    with limit_memory(8 * KIB):
        try:
            kib(9)
        except torch.OutOfMemoryError:
            all_there_is = kib(8)
    assert all_there_is.nbytes == 8 * KIB


@pytest.mark.parametrize("metered", [False, True])
def test_freeing_memory_alive_at_entry_lowers_the_count(metered: bool) -> None:
    held = [kib(6)]
    with PeakMeter() if metered else nullcontext(), limit_memory(8 * KIB, held_bytes=6 * KIB):
        kib(2)
        with pytest.raises(torch.OutOfMemoryError, match=r"while 6\.00 KiB of the limit"):
            kib(3)
        held.clear()
        kib(8)


def test_entry_above_the_limit() -> None:
    """Operators that allocate are rejected; others still run."""
    a = torch.ones(4)
    with limit_memory(KIB, held_bytes=2 * KIB):
        a.add_(1).view(2, 2)
        with pytest.raises(torch.OutOfMemoryError):
            a.clone()
    assert a[0] == 2


def layers(width: int) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width)), torch.randn(64, width)


def assert_fits_exactly(work: Callable[[], Any], peak: int) -> None:
    """Assert that work runs with exactly its measured peak, fails with less, and can be retried after the failure."""
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError), limit_memory(peak - 512):
            work()
        with limit_memory(peak):
            work()


@pytest.mark.parametrize("kind", ["sage-mean", "sage-lstm", "gat", "gin"])
def test_a_step_fits_into_its_measured_peak(kind: str) -> None:
    torch.manual_seed(0)
    mb = random_minibatch(random_graph(400, 3200, edge_weight=torch.float32), fanouts=(6, 4), num_seeds=100)
    model = build_model(kind, in_dim=32, hidden_dim=32, out_dim=5, num_layers=2, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(400, 32), torch.arange(400) % 5

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(mb.blocks, x[mb.node_ids], node_ids=mb.node_ids), y[mb.seeds]).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    assert_fits_exactly(step, measure_peak(step))


def test_rejection_inside_the_autograd_engine() -> None:
    """If only the backward pass exceeds the limit, the engine frees the tasks of the failed pass."""
    model, x = layers(64)

    def step() -> None:
        model(x).square().sum().backward()
        model.zero_grad()

    with PeakMeter() as meter:
        meter.mark("forward")
        loss = model(x).square().sum()
        meter.mark("backward")
        loss.backward()
    model.zero_grad()
    assert meter.phase_peak_bytes["forward"] < meter.phase_peak_bytes["backward"] - 512
    assert_fits_exactly(step, meter.peak_bytes)


def test_copies_caused_by_the_dispatch_mode_are_not_rejected() -> None:
    """Under a dispatch mode the engine copies tensors that it would otherwise overwrite."""
    step = gathered(by_select, lambda z, i, m: z.index_add_(0, i, m))()
    step()
    assert_fits_exactly(step, measure_peak(step))


class _Greedy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        kib(64)
        return grad


def test_rejection_inside_a_custom_backward() -> None:
    x = torch.ones(16, requires_grad=True)
    with limit_memory(16 * KIB):
        loss = _Greedy.apply(x).sum()
        with pytest.raises(torch.OutOfMemoryError, match=r"allocate 64.00 KiB while 1.00 KiB"):
            loss.backward()
    assert x.grad is None


@pytest.mark.parametrize("capacity", [6 * KIB, 3 * KIB])
def test_inner_and_outer_meters_ignore_rejected_results(capacity: int) -> None:
    """A rejected result counts for neither meter."""

    def work() -> None:
        held = kib(2)
        with pytest.raises(torch.OutOfMemoryError):
            kib(5)
        kib(1)
        del held

    with PeakMeter() as outer, limit_memory(capacity), PeakMeter() as inner:
        work()
        kib(3)
    assert outer.peak_bytes == inner.peak_bytes == 3 * KIB


def test_the_tightest_of_nested_limits_applies() -> None:
    for outer, inner in ((2, 4), (4, 2)):
        with limit_memory(outer * KIB), limit_memory(inner * KIB):
            kib(2)
            with pytest.raises(torch.OutOfMemoryError, match=r"limit of 2\.00 KiB"):
                kib(3)
        with limit_memory(4 * KIB):
            kib(3)


@pytest.mark.parametrize("threads", [1, 3])
def test_allocations_of_kernel_threads_are_limited(threads: int) -> None:
    made: list[Tensor] = []
    before = get_num_threads()
    set_num_threads(threads)
    try:
        with limit_memory(9 * KIB):
            with pytest.raises(torch.OutOfMemoryError):
                run_tasks([lambda: made.append(kib(2)) for _ in range(10)])
            assert len(made) == 4
            kib(1)
    finally:
        set_num_threads(before)


def test_growing_allocates_before_it_frees() -> None:
    a = torch.empty(0, dtype=torch.uint8)
    with limit_memory(8 * KIB):
        a.resize_(3 * KIB)
        a.resize_(5 * KIB)
        with pytest.raises(torch.OutOfMemoryError, match=r"tried to allocate 6.00 KiB while 5"):
            a.resize_(6 * KIB)


def test_tensors_whose_attributes_autograd_protects_are_skipped() -> None:
    base = torch.ones(4, requires_grad=True).clone()
    with torch.no_grad():
        view = base[:2]
    base.mul_(2)
    with pytest.raises(RuntimeError, match="no_grad mode"):
        _ = view.is_leaf
    with limit_memory(KIB):
        kib(1)


def test_a_cpu_with_a_number_is_limited() -> None:
    with limit_memory(KIB, device="cpu:0"), pytest.raises(torch.OutOfMemoryError):
        kib(2)


def test_an_exception_leaves_no_residue() -> None:
    modes = len(_get_current_dispatch_mode_stack())
    with pytest.raises(torch.OutOfMemoryError), limit_memory(KIB):
        kib(4)
    assert len(_get_current_dispatch_mode_stack()) == modes


def test_other_devices_and_sizes_are_rejected() -> None:
    with pytest.raises(ValueError, match="cpu or cuda"), limit_memory(1, device="meta"):
        pass
    for capacity_bytes, held_bytes in ((-1, 0), (1, -1)):
        with pytest.raises(ValueError, match="whole number"), limit_memory(capacity_bytes, held_bytes=held_bytes):
            pass


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_is_rejected() -> None:
    with (
        pytest.raises(ValueError, match="memory of device 'cuda': torch sees 0 CUDA devices"),
        limit_memory(1, device="cuda"),
    ):
        pass


@pytest.mark.parametrize("device", DEVICES)
def test_both_devices_reject_alike(device: str) -> None:
    mib = 1 << 20
    held = [torch.empty(64 * mib, dtype=torch.uint8, device=device)]
    with limit_memory(128 * mib, device=device, held_bytes=32 * mib):
        torch.empty(64 * mib, dtype=torch.uint8, device=device)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(160 * mib, dtype=torch.uint8, device=device)
        torch.empty(96 * mib, dtype=torch.uint8, device=device)
        assert held
    torch.empty(160 * mib, dtype=torch.uint8, device=device)


@pytest.mark.cuda
def test_the_first_gpu_is_limited_whichever_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    limit = limit_memory(KIB, device="cuda:0")
    with limit, pytest.raises(torch.OutOfMemoryError, match=r"cuda:0 out of memory"):
        torch.empty(2 * KIB, dtype=torch.uint8, device="cuda:0")


@pytest.mark.cuda
@pytest.mark.parametrize("mib", [8, 64])
def test_a_step_whose_peak_is_the_limit_fits_on_a_gpu(mib: int) -> None:
    """However the allocator divides its segments: they are larger than what is in them."""
    rows = mib * (1 << 20) // 4096
    weight = torch.ones(1024, device="cuda", requires_grad=True)
    x = torch.ones(rows // 4, 1024, device="cuda")
    fragments = [torch.empty(3 << 19, dtype=torch.uint8, device="cuda") for _ in range(8)][::2]  # half used segments

    def step() -> None:
        ((x * weight).tanh() * weight).sum().backward()

    step()
    weight.grad = None
    peak = measure_peak(step, device="cuda")
    assert peak > mib << 19
    weight.grad = None
    with limit_memory(peak, device="cuda"), PeakMeter("cuda") as meter:
        step()
    assert meter.peak_bytes == peak and fragments
    weight.grad = None
    # The sum over rows takes up to 2 · x in the operator, which the peak of a GPU has and the limit does not count.
    too_little = limit_memory(3 * x.nbytes - 1, device="cuda")
    with too_little, pytest.raises(torch.OutOfMemoryError, match=r"cuda.* of the limit"):
        step()
