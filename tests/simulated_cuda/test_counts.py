"""What the simulated device counts, compared with what CUDA does by torch's documentation and source."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.simulated_cuda import SimulatedDevice, counting, simulated_cuda

MIB = 1 << 20


@pytest.fixture
def device() -> Iterator[SimulatedDevice]:
    if torch.cuda.is_available():
        pytest.skip("a GPU is there: the simulation is off")
    with simulated_cuda(64 * MIB) as simulated:
        yield simulated


def mib(count: int) -> torch.Tensor:
    return torch.empty(count * MIB, dtype=torch.uint8, device="cuda")


def test_live_and_peak_bytes_by_storage(device: SimulatedDevice) -> None:
    x = torch.ones(100, device="cuda")  # 400 bytes are 512
    views = [x[3:], x.view(10, 10), x.detach()]
    assert torch.cuda.memory_allocated() == 512
    y = x + 1
    del y
    assert torch.cuda.memory_allocated() == 512 and torch.cuda.max_memory_allocated() == 1024
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 512
    del x
    assert torch.cuda.memory_allocated() == 512  # the views' storage
    views.clear()
    assert torch.cuda.memory_allocated() == 0 and torch.empty(0, device="cuda").is_cuda
    views.append(torch.ones(1000, device="cuda").add_(1).mul_(2))  # in place
    assert torch.cuda.memory_allocated() == torch.cuda.max_memory_allocated() == 4096


def test_segments(device: SimulatedDevice) -> None:
    """Sizes of CUDACachingAllocator.cpp: 2 MiB up to 1 MiB, 20 MiB below 10 MiB, then multiples of 2 MiB."""
    small = torch.ones(1, device="cuda")
    assert torch.cuda.memory_reserved() == 2 * MIB
    middle = mib(3)
    assert torch.cuda.memory_reserved() == 22 * MIB
    large = mib(18)
    assert torch.cuda.memory_reserved() == 40 * MIB and torch.cuda.mem_get_info() == (24 * MIB, 64 * MIB)
    other = mib(9)  # from the segment of 20 MiB
    assert torch.cuda.memory_reserved() == 40 * MIB
    del large
    assert torch.cuda.memory_reserved() == 40 * MIB
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 22 * MIB
    del middle
    torch.cuda.empty_cache()  # a segment that is partly used stays
    assert torch.cuda.memory_reserved() == 22 * MIB and torch.cuda.memory_allocated() == 9 * MIB + 512
    del other, small
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0 and torch.cuda.max_memory_reserved() == 40 * MIB


def test_capacity_and_fraction(device: SimulatedDevice) -> None:
    kept = mib(30)
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 40.00 MiB"):
        mib(40)
    torch.cuda.set_per_process_memory_fraction(0.5)
    with pytest.raises(torch.OutOfMemoryError, match=r"may use 32.00 MiB"):
        mib(10)
    torch.cuda.set_per_process_memory_fraction(1.0)
    del kept
    assert mib(60).is_cuda  # the unused segment of 30 MiB is released first


def test_gradients_that_a_gpu_adds_in_place_are_not_counted_twice(device: SimulatedDevice) -> None:
    x = torch.ones(MIB, device="cuda", requires_grad=True)  # 4 MiB
    y = x.exp()
    loss = (y * 2.0).sum() + (y * 3.0).sum()
    entry = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loss.backward()
    assert torch.cuda.max_memory_allocated() - entry == 8 * MIB + 512  # two gradients of y; not their sum besides
    assert x.grad is not None and x.grad.is_cuda


COPIES: list[tuple[Callable[[torch.Tensor, torch.Tensor], Any], tuple[str, bool, bool], int]] = [
    (lambda host, x: host.cuda(), ("h2d", False, True), 1),
    (lambda host, x: host.to("cuda", non_blocking=True), ("h2d", False, False), 0),
    (lambda host, x: host.pin_memory().to("cuda"), ("h2d", True, True), 1),
    (lambda host, x: host.pin_memory().to("cuda", non_blocking=True), ("h2d", True, False), 0),
    (lambda host, x: x.copy_(host), ("h2d", False, True), 1),
    (lambda host, x: torch.tensor([0.0] * 6, device="cuda"), ("h2d", False, True), 1),
    (lambda host, x: x.cpu(), ("d2h", False, True), 1),
    (lambda host, x: x.to("cpu", non_blocking=True), ("d2h", True, False), 0),
    (lambda host, x: host.copy_(x, non_blocking=True), ("d2h", False, True), 1),
    (lambda host, x: torch.empty(6, pin_memory=True).copy_(x, non_blocking=True), ("d2h", True, False), 0),
]


@pytest.mark.parametrize(("copy", "expected", "syncs"), COPIES)
def test_copies(device: SimulatedDevice, copy: Callable[..., Any], expected: tuple, syncs: int) -> None:
    host, x = torch.arange(6.0), torch.zeros(6, device="cuda")
    with counting() as counts:
        copy(host, x)
    assert [(c.direction, c.pinned, c.blocking) for c in counts.copies] == [expected] and counts.copies[0].nbytes == 24
    assert len(counts.syncs) == syncs and "test_counts.py" in counts.copies[0].line
    assert bool(counts.pageable) == (expected[1:] != (True, False))


@pytest.mark.parametrize(
    ("operation", "syncs"),
    [
        (lambda x: x.sum().item(), 1),
        (lambda x: bool((x > 0).any()), 1),
        (lambda x: int(x[0]) + float(x[1]), 2),
        (lambda x: x.tolist(), 1),
        (lambda x: x.nonzero(), 1),
        (lambda x: x[x > 1], 1),
        (lambda x: x.masked_select(x > 1), 1),
        (lambda x: x.long().unique(), 1),
        (lambda x: torch.unique_consecutive(x), 1),
        (lambda x: torch.equal(x, x), 1),
        (lambda x: x.repeat_interleave(x.long()), 1),
        (lambda x: x.repeat_interleave(x.long(), output_size=15), 0),
        (lambda x: torch.bincount(x.long()), 1),
        (lambda x: x[torch.tensor([1])], 1),
        (lambda x: x.index_put_((x > 1,), x[:4] + 1), 1),
        (lambda x: x.__setitem__(x > 1, 0.0), 0),  # a masked fill
        (lambda x: x.masked_fill_(x > 1, 0.0), 0),
        (lambda x: x.where(x > 1, 0.0), 0),
        (lambda x: x.sort()[1].cumsum(0), 0),
        (lambda x: x[torch.tensor([1], device="cuda")], 1),  # torch.tensor
        (lambda x: torch.arange(3, device="cuda") + torch.full((3,), 2, device="cuda"), 0),
        (lambda x: torch.cuda.synchronize(), 1),
        (lambda x: torch.cuda.current_stream().synchronize(), 1),
    ],
)
def test_synchronisations(device: SimulatedDevice, operation: Callable[[torch.Tensor], Any], syncs: int) -> None:
    x = torch.arange(6.0).cuda()
    with counting() as counts:
        operation(x)
    assert len(counts.syncs) == syncs, counts.lines()
    assert all("test_counts.py" in sync.line for sync in counts.syncs)


def test_launches(device: SimulatedDevice) -> None:
    x = torch.ones(6, device="cuda")
    with counting() as counts:
        (x.view(2, 3).t() + 1).sum(0)[:1].detach()
        torch.empty(3, device="cuda")
    assert counts.launches == {"add": 1, "sum": 1} and counts.num_launches == 2


# -- streams


def test_a_use_on_another_stream_requires_an_event(device: SimulatedDevice) -> None:
    side, x = torch.cuda.Stream(), torch.zeros(6, device="cuda")
    with torch.cuda.stream(side), pytest.raises(RuntimeError, match=r"add on stream \d+ uses memory that stream 0"):
        x.add(1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x + 1
        ready = side.record_event()
    with pytest.raises(RuntimeError, match=r"stream 0 uses memory that stream \d+"):
        y.sum()
    with pytest.raises(RuntimeError, match=r"stream 0 uses memory that stream \d+"):
        x.zero_()  # written while it may be read
    ready.wait()
    y.record_stream(torch.cuda.current_stream())
    assert y.sum().item() == 6
    with torch.cuda.stream(side):
        z = x.exp()
    ready = side.record_event()
    ready.synchronize()  # the host's wait orders what is queued later
    assert (z + 1).sum().item() == 12


def test_memory_that_another_stream_uses_must_be_recorded() -> None:
    if torch.cuda.is_available():
        pytest.skip("a GPU is there: the simulation is off")

    def run(*, record: bool) -> None:
        with simulated_cuda():
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                x = torch.ones(6, device="cuda")
            torch.cuda.current_stream().wait_stream(side)
            y = x + 1
            if record:
                x.record_stream(torch.cuda.current_stream())
            del x, y
            gc.collect()

    run(record=True)
    with pytest.raises(RuntimeError, match="call record_stream"):
        run(record=False)


def test_downloads_are_wrong_until_the_host_waits(device: SimulatedDevice) -> None:
    x = torch.arange(6, device="cuda")
    host, rows = x.to("cpu", non_blocking=True), (x * 1.0).to("cpu", non_blocking=True)
    assert host.is_pinned() and host.tolist() == [torch.iinfo(torch.int64).max] * 6 and rows.isnan().all()
    again = host.to("cuda", non_blocking=True)  # in the order of the stream
    done = torch.cuda.Event()
    done.record()
    done.synchronize()
    assert host.tolist() == list(range(6)) and torch.equal(again, x) and rows.sum() == 15


def test_pinned_memory_must_not_be_overwritten_while_it_is_copied(device: SimulatedDevice) -> None:
    host = torch.zeros(6).pin_memory()
    host.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    host.fill_(1)
    host.to("cuda", non_blocking=True)
    host.fill_(2)
    with pytest.raises(RuntimeError, match="pinned memory was overwritten"):
        torch.cuda.synchronize()
