"""`Machine.here`: the speeds of this machine, measured in some seconds."""

import os
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from workbench.advisor.known_machines import DISK, USUAL_HOST
from workbench.core.errors import available_bytes, total_bytes
from workbench.core.randomness import permutation
from workbench.core.units import format_bytes
from workbench.error_text import line_of
from workbench.kernels.gather import gather_rows
from workbench.kernels.threads import get_num_threads
from workbench.outofcore.tuning import DiskModel
from workbench.paths import cache_folder

_ROUNDS = 5
_ARRAY_BYTES = 1 << 28  # larger than caches
_WIDTH = 128  # float32 values of a row
_MATRIX, _GPU_MATRIX = 1024, 4096  # rows and columns
_DISK_ROUNDS, _DISK_SECONDS = 9, 3.0  # a disk that took longer is not measured once more
_FILE_BYTES = 1 << 25
_SENT_BYTES = 1 << 24
_LOOPBACK = "127.0.0.1"
_RANKS_TIMEOUT = timedelta(seconds=5)


class Found(NamedTuple):
    """A speed or a size, and how it was found."""

    value: float | int | None
    source: str


def measure_this_machine(folder: str | os.PathLike[str] | None = None) -> tuple[str, bool, dict[str, Found]]:
    """Measure speeds and sizes, once per process.

    Returns:
        The name of the machine, whether its device is the CPU, and what was found by field.
    """
    host = _host() | _ranks() | _disk_of(folder)
    if torch.cuda.is_available():
        return f"this machine, {torch.cuda.get_device_name()}", False, host | _gpu()
    return "this machine, no GPU", True, host | _cpu(host)


@cache
def _host() -> dict[str, Found]:
    """Gathers of the CPU, its cores and memory."""
    rows = _ones(available_bytes())
    ids, target = permutation(0, len(rows)), torch.empty_like(rows)
    gather = _speed(rows.nbytes, lambda: gather_rows(rows, ids, out=target))
    return {
        "gather": Found(gather, f"measured: {len(rows):,} random rows of {4 * _WIDTH} B, {_times()}"),
        "cores": Found(get_num_threads(), "measured: cores of this process, or WORKBENCH_NUM_THREADS"),
        "host_memory_bytes": Found(total_bytes(), "measured: physical memory, or the container's limit"),
    }


def _cpu(host: dict[str, Found]) -> dict[str, Found]:
    """The CPU as the device: rows are gathered from its own memory."""
    return _cpu_speeds() | {
        "alpha": Found(host["network"].value, "that of network: the devices are ranks of this machine"),
        "beta": Found(host["gather"].value, "that of gather: the device is the CPU"),
        "device_memory_bytes": Found(host["host_memory_bytes"].value, "that of the host: the device is the CPU"),
    }


@cache
def _cpu_speeds() -> dict[str, Found]:
    source = _ones(available_bytes())
    target, matrix = torch.empty_like(source), torch.ones(_MATRIX, _MATRIX)
    product = torch.empty_like(matrix)
    return {
        "gamma": Found(
            _speed(2 * source.nbytes, lambda: target.copy_(source)),
            f"measured: copy of {format_bytes(source.nbytes)}, read and written, {_times()}",
        ),
        "flops": Found(
            _speed(2 * _MATRIX**3, lambda: torch.mm(matrix, matrix, out=product)), _products(_MATRIX) + f", {_times()}"
        ),
    }


@cache
def _gpu() -> dict[str, Found]:
    """Copies and products of the current GPU, and copies from another if there is one."""
    device = torch.device("cuda", torch.cuda.current_device())
    free, total = torch.cuda.mem_get_info(device)
    host = _ones(min(free, available_bytes()))
    pinned = torch.empty_like(host, pin_memory=True).copy_(host)
    source, matrix = host.to(device), torch.ones(_GPU_MATRIX, _GPU_MATRIX, device=device)
    target, product = torch.empty_like(source), torch.empty_like(matrix)

    def speed(amount: float, work: Callable[[], object]) -> float:
        return _speed(amount, work, partial(torch.cuda.synchronize, device))

    size, precision = format_bytes(host.nbytes), torch.get_float32_matmul_precision()
    beta = speed(host.nbytes, lambda: target.copy_(pinned, non_blocking=True))
    return {
        "gamma": Found(
            speed(2 * host.nbytes, lambda: target.copy_(source)),
            f"measured: copy of {size}, read and written, {_times()}",
        ),
        "alpha": _peer(target, speed) or Found(beta, "that of beta: through host memory; not measured: one GPU"),
        "beta": Found(beta, f"measured: copy of {size} from page-locked memory, {_times()}"),
        "flops": Found(
            speed(2 * _GPU_MATRIX**3, lambda: torch.mm(matrix, matrix, out=product)),
            f"{_products(_GPU_MATRIX)} of precision {precision!r}, {_times()}",
        ),
        "device_memory_bytes": Found(total, "measured: memory of the GPU"),
    }


def _peer(target: Tensor, speed: Callable[[float, Callable[[], object]], float]) -> Found | None:
    """Copies from another GPU; None if there is none."""
    others = [number for number in range(torch.cuda.device_count()) if number != target.get_device()]
    if not others:
        return None
    source = torch.ones_like(target, device=f"cuda:{others[0]}")
    text = f"measured: copy of {format_bytes(source.nbytes)} from GPU {others[0]}, {_times()}"
    return Found(speed(source.nbytes, lambda: target.copy_(source, non_blocking=True)), text)


@cache
def _ranks() -> dict[str, Found]:
    """An exchange between two ranks, here two threads of this process, over the loopback device.

    A build of torch without Gloo, or a sandbox without a loopback device, measures nothing.
    """
    try:
        store: Any = dist.HashStore()  # pyright: ignore[reportPrivateImportUsage]
        with ThreadPoolExecutor(2) as pool:
            speed = min(pool.map(partial(_exchange, store), range(2)))
    except (AttributeError, RuntimeError) as error:
        return {"network": _usual("network", error)}
    text = f"measured: exchange of {format_bytes(_SENT_BYTES)} by Gloo between two ranks of this machine, {_times()}"
    return {"network": Found(speed, text)}


def _exchange(store: Any, rank: int) -> float:
    """Bytes per second that a rank receives from the other, while it sends as many."""
    gloo: Any = dist.ProcessGroupGloo
    options = gloo._Options()
    options._devices, options._timeout = [gloo.create_device(hostname=_LOOPBACK)], _RANKS_TIMEOUT
    group = gloo(store, rank, 2, options)
    sent = torch.ones(2, _SENT_BYTES // 4)
    received = torch.empty_like(sent)

    def exchange() -> None:
        group.alltoall_base(received, sent, [], []).wait()

    return _speed(_SENT_BYTES, exchange, before=lambda: group.barrier().wait())


def _disk_of(folder: str | os.PathLike[str] | None) -> dict[str, Found]:
    """The disk of a folder; by default that of the cache, or else of temporary files."""
    if folder is not None:
        return _disk(Path(folder).absolute())
    cache_place = next(place for place in (cache_folder(), *cache_folder().parents) if place.is_dir())
    try:
        return _disk(cache_place)
    except OSError:
        temporary = Path(tempfile.gettempdir())
    try:
        return _disk(temporary)
    except OSError as error:
        return {name: _usual(name, error) for name in DISK}


@cache
def _disk(folder: Path) -> dict[str, Found]:
    found, begin = [], time.perf_counter()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        while not found or (len(found) < _DISK_ROUNDS and time.perf_counter() - begin < _DISK_SECONDS):
            found.append(DiskModel.measured(folder, file_bytes=_FILE_BYTES))
    cached = any("O_DIRECT" in str(warning.message) for warning in told)
    how = "through the page cache (the file system does not support O_DIRECT)" if cached else "past the page cache"
    where = f"of a new file in {folder}, {how}, {_times(len(found))}"
    return {
        "disk": Found(median(disk.bytes_per_second for disk in found), f"measured: reads of 1 MiB {where}"),
        "disk_reads": Found(median(disk.reads_per_second for disk in found), f"measured: reads of 4 KiB {where}"),
        "disk_writes": Found(
            median(disk.write_bytes_per_second or disk.bytes_per_second for disk in found),
            f"measured: a file of {format_bytes(_FILE_BYTES)} in {folder}, synced, {_times(len(found))}",
        ),
        "disk_block_bytes": Found(found[0].block_bytes, f"measured: the smallest read in {folder}, {how}"),
    }


def _usual(name: str, error: Exception) -> Found:
    """What is assumed where measuring failed."""
    value, source = USUAL_HOST[name]
    return Found(value, f"{source}; not measured: {line_of(error)}")


def _ones(free_bytes: int) -> Tensor:
    """Rows larger than caches, of which some fit into the free memory; every page is written."""
    return torch.ones(max(1, min(_ARRAY_BYTES, free_bytes // 8) // (4 * _WIDTH)), _WIDTH)


def _times(rounds: int = _ROUNDS) -> str:
    return f"median of {rounds}" if rounds > 1 else "once"


def _products(size: int) -> str:
    return f"measured: float32 products of {size} × {size} matrices"


def _speed(
    amount: float,
    work: Callable[[], object],
    after: Callable[[], object] = lambda: None,
    *,
    before: Callable[[], object] = lambda: None,
) -> float:
    """Amount per second of the median run; one before warms up.

    Args:
        amount: bytes or operations of a run.
        work: to measure.
        after: waits for work that is queued.
        before: is called before each run, and not measured.
    """
    seconds = []
    for _ in range(_ROUNDS + 1):
        before()
        after()
        begin = time.perf_counter()
        work()
        after()
        seconds.append(time.perf_counter() - begin)
    return amount / median(seconds[1:])
