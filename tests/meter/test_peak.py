"""The meter compared with the CPU allocator's events and with cases counted by hand."""

import io
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.meter.tensors import KIB, kib
from workbench.kernels.threads import get_num_threads, run_tasks, set_num_threads
from workbench.meter.peak import PeakMeter, measure_peak


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
        for _ in range(3):
            a = torch.from_numpy(np.ones(4 * KIB, dtype=np.uint8))
            a.add(1)
            del a
        kib(6)

    assert measure_peak(fn) == 6 * KIB
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


def in_thread() -> Tensor:
    made: list[Tensor] = []
    thread = threading.Thread(target=lambda: made.append(torch.ones(KIB)))
    thread.start()
    thread.join()
    return made.pop()


def loaded() -> Tensor:
    file = io.BytesIO()
    torch.save(torch.ones(KIB), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(
    "make",
    [
        in_thread,
        loaded,
        lambda: torch.from_numpy(np.ones(KIB, dtype=np.float32)),
        lambda: torch.from_dlpack(np.ones(KIB, dtype=np.float32)),
        lambda: torch.frombuffer(bytearray(4 * KIB), dtype=torch.float32),
    ],
)
def test_freeing_what_was_not_seen_allocated_lowers_no_later_peak(make: Callable[[], Tensor]) -> None:
    """Such tensors are not older than the block, though the meter sees them first as arguments."""

    def fn() -> None:
        for _ in range(4):
            t = make()
            t.neg()
            del t
        kib(64)

    assert measure_peak(fn) == 64 * KIB


def test_tensors_saved_before_the_block_count_when_freed() -> None:
    """The garbage collector does not list them: only the graph refers to them."""
    x = torch.ones(64 * KIB, requires_grad=True)
    loss = x.exp().exp().sum()
    with PeakMeter() as meter:
        loss.backward()
    assert meter.freed_bytes == 2 * 256 * KIB and x.grad is not None
    assert meter.gross_peak_bytes >= meter.peak_bytes + 256 * KIB


def test_what_was_freed_is_stated() -> None:
    held = [kib(8), kib(1)]
    with PeakMeter() as meter:
        held.pop(0)
        kib(6)
        assert (meter.peak_bytes, meter.freed_bytes, meter.net_freed_bytes) == (0, 8 * KIB, 8 * KIB)
        assert meter.gross_peak_bytes == 6 * KIB
        held.append(kib(10))
    assert (meter.peak_bytes, meter.freed_bytes, meter.net_freed_bytes) == (2 * KIB, 8 * KIB, 0)
    assert meter.gross_peak_bytes == 10 * KIB


def test_a_call_that_measures_more_next_time_warns() -> None:
    held = {"prefetched": kib(500)}

    def step() -> None:
        held.pop("prefetched", None)
        kib(700)

    with pytest.warns(RuntimeWarning, match=r"peak of 204,800 bytes would be up to 512,000 bytes higher"):
        assert measure_peak(step) == 200 * KIB
    assert measure_peak(step) == 700 * KIB  # and does not warn
    weight = nn.Parameter(torch.ones(100 * KIB))

    def train() -> None:
        weight.grad = None
        weight.square().sum().backward()

    train()
    measure_peak(train)  # gradients are freed, and allocated again


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
