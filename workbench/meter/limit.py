"""Limits of memory, of live tensors (`limit_memory`) or of the process; and peaks that the operating system counts."""

import ctypes
import gc
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

import torch

from workbench.core.errors import (
    available_bytes,
    check_at_least,
    check_bytes,
    complete_despite_interrupt,
    deferred_interrupt,
)
from workbench.core.units import format_bytes
from workbench.meter.allocation_tracker import AllocationTracker, FrozenGarbage, paused_collection

_CLEAR_REFS, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def limit_memory(
    capacity_bytes: int | str, *, device: torch.device | str = "cpu", held_bytes: int | str = 0
) -> AbstractContextManager[None]:
    """Limit the live bytes on a device inside a `with` block.

    Memory alive at entry counts as `held_bytes`, less whatever of it is freed; later allocations count in full, each
    storage once, rounded up to 512 bytes. A capacity thus means the same on every device: a training step whose
    `measure_peak` is `p` fits into `held_bytes + p`. Limits nest; the tightest one applies.

    An operator runs before its result is rejected, so the process may briefly allocate more. Workspace inside operators
    and tensors allocated by other threads or by native code are not limited. CUDA's caching allocator could limit its
    own segments instead, but these are up to 20 MiB larger than what they contain: a step that fits would run out.

    Args:
        capacity_bytes: maximum of live bytes on the device, a number or text such as "8GiB".
        device: "cpu" or a CUDA device.
        held_bytes: bytes of the memory alive at entry that count: parameters and optimizer state, for example, but not
            a data set that is on the device for convenience.

    Raises:
        ValueError: if the device is neither a CPU nor an existing CUDA device, or a number is negative.
        torch.OutOfMemoryError: inside the block, by an allocation beyond the limit. The message names the bytes
            requested, live and allowed. The block can continue with smaller allocations.
    """
    device = torch.device(device)
    capacity_bytes = check_bytes("capacity_bytes", capacity_bytes, 0)
    held_bytes = check_bytes("held_bytes", held_bytes, 0)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"can't limit memory of device {str(device)!r}; choose cpu or cuda")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"can't limit memory of device {str(device)!r}: torch sees {torch.cuda.device_count()} CUDA devices; "
            'install a CUDA build of torch and the GPU driver, or pass device="cpu"'
        )
    return _Limit(device, capacity_bytes, held_bytes)


class _Limit(AbstractContextManager[None]):
    """Context manager of `limit_memory`; an interrupt at entry or exit never leaves the limit in force."""

    def __init__(self, device: torch.device, capacity_bytes: int, held_bytes: int) -> None:
        self._device, self._capacity_bytes, self._held_bytes = device, capacity_bytes, held_bytes
        self._block = ExitStack()

    def __enter__(self) -> None:
        try:
            with deferred_interrupt(), paused_collection():
                tracker = _DeviceTracker(self._device, self._check)
                tracker.start()
                self._block.callback(tracker.stop)
                self._block.enter_context(FrozenGarbage())
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        complete_despite_interrupt(self._block.close)

    def _check(self, requested: int, live: int) -> Exception | None:
        live += self._held_bytes
        if live + requested <= self._capacity_bytes:
            return None
        return torch.OutOfMemoryError(
            f"{self._device} out of memory: tried to allocate {format_bytes(requested)} while {format_bytes(live)} of "
            f"the limit of {format_bytes(self._capacity_bytes)} are in use; split the batch into more micro-batches or "
            "raise the limit"
        )


class _DeviceTracker(AllocationTracker):
    """Counts the storages of one device."""

    def __init__(self, device: torch.device, on_allocation: Callable[[int, int], Exception | None]) -> None:
        super().__init__(on_allocation)
        self.device_type = device.type
        self._index: int | None = None  # a CPU has one memory, whatever its number
        if device.type == "cuda":
            self._index = torch.cuda.current_device() if device.index is None else device.index

    def _track(self, storage: torch.UntypedStorage, *, counted: bool = True, older: bool = True) -> None:
        if self._index is None or storage.device.index == self._index:
            super()._track(storage, counted=counted, older=older)


@contextmanager
def limit_data(budget_bytes: int | str) -> Iterator[None]:
    """Limit what this process may allocate inside a `with` block beyond what it has: RLIMIT_DATA of Linux.

    Everything counts that is private and writable: tensors, NumPy arrays, anonymous maps, stacks of threads, objects of
    the interpreter; files mapped for reading and the page cache do not. An allocation beyond the limit fails: torch
    raises RuntimeError, NumPy and Python MemoryError. Limits nest, also in one that the process has already; the
    tightest one applies.

    Args:
        budget_bytes: bytes beyond those of the entry, a number or text such as "64MiB".
    """
    budget = check_bytes("budget_bytes", budget_bytes, 0)
    present = status_bytes("VmData")
    if present is None:
        raise OSError("the system does not report VmData in /proc/self/status; limit_data needs Linux")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    given = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([present + budget, *given]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def free_bytes(device: torch.device | str) -> int:
    """Return the bytes that a step can still allocate on a device.

    On CUDA this is the driver's free memory plus unused memory that torch's allocator has reserved; on the CPU it is
    the available host memory.

    Args:
        device: "cpu" or a CUDA device.
    """
    device = torch.device(device)
    if device.type != "cuda":
        return available_bytes()
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


class HostPeak:
    """Measures the peak resident memory of this process in a `with` block, minus its resident memory at entry.

        with HostPeak() as peak:
            work()
        peak.nbytes

    Resident memory includes tensors, NumPy arrays, memory of libraries and objects of the interpreter, in whole pages,
    of all threads but no other processes. Freed memory that the C library caches is returned to the system first;
    otherwise the block would reuse it unnoticed. Blocks can't nest, because each one resets the system's counter.

    Args:
        nbytes: peak in bytes, set at the end of the block; None on systems without /proc.
    """

    def __init__(self) -> None:
        self.nbytes: int | None = None
        self._entry: int | None = None

    def __enter__(self) -> Self:
        self.nbytes = None
        return_freed_memory()
        self._entry = status_bytes("VmRSS") if _reset_peak() else None
        return self

    def __exit__(self, *error: object) -> None:
        peak = status_bytes("VmHWM")
        self.nbytes = None if self._entry is None or peak is None else max(0, peak - self._entry)


def return_freed_memory() -> None:
    """Return freed memory that the C library caches to the system, if the library supports it."""
    gc.collect()
    with suppress(OSError, AttributeError):  # only glibc has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


def _reset_peak() -> bool:
    """Reset the system's peak counter and return whether that succeeded; see clear_refs in proc(5)."""
    try:
        _CLEAR_REFS.write_text("5")
    except OSError:
        return False
    return True


def status_bytes(name: str) -> int | None:
    """Return a value of /proc/self/status in bytes, None if it is missing.

    Args:
        name: of the value: "VmRSS", "VmData", "RssAnon", ….
    """
    try:
        lines = _STATUS.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
    except (OSError, StopIteration):
        return None


class AnonymousPeak:
    """Measures the peak of this process's resident memory that belongs to no file, minus that at entry.

        with AnonymousPeak() as peak:
            work()
        peak.nbytes

    Pages of mapped files and of the page cache, which the system drops when it needs them, do not count (`HostPeak`
    counts the mapped ones). The system keeps no maximum of this number: a thread reads it every few milliseconds, so a
    shorter peak may be missed.

    Args:
        milliseconds: time between two readings, at least 1.

    Attributes:
        nbytes: peak in bytes, set at the end of the block; None on systems without /proc.
    """

    def __init__(self, milliseconds: int = 5) -> None:
        check_at_least("milliseconds", milliseconds, 1)
        self.nbytes: int | None = None
        self._seconds, self._ended = milliseconds / 1000, threading.Event()
        self._entry: int | None = None
        self._most = 0

    def __enter__(self) -> Self:
        return_freed_memory()
        self._entry, self._most = status_bytes("RssAnon"), 0
        self._ended.clear()
        self._thread = threading.Thread(target=self._watch, name="workbench-anonymous-peak", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._read()
        self.nbytes = None if self._entry is None else max(0, self._most - self._entry)

    def _watch(self) -> None:
        while not self._ended.wait(self._seconds):
            self._read()

    def _read(self) -> None:
        self._most = max(self._most, status_bytes("RssAnon") or 0)
