"""`HostPeak`: the peak resident memory of a block, as counted by the operating system."""

import ctypes
import gc
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from workbench.core.errors import check_at_least, check_bytes

_CLEAR_REFS, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


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


@contextmanager
def limit_data(budget_bytes: int | str) -> Iterator[None]:
    """Limit what this process may allocate inside a `with` block beyond what it has: RLIMIT_DATA of Linux.

    Everything counts that is private and writable: tensors, NumPy arrays, anonymous maps, stacks of threads, objects of
    the interpreter; files mapped for reading and the page cache do not. An allocation beyond the limit fails: torch
    raises RuntimeError, NumPy and Python MemoryError.

    Args:
        budget_bytes: bytes beyond those of the entry, a number or text such as "64MiB".

    Raises:
        ValueError: a negative number, or a limit that the process is not allowed.
        OSError: the system does not report the memory of a process (only Linux does).
    """
    budget = check_bytes("budget_bytes", budget_bytes, 0)
    present = status_bytes("VmData")
    if present is None:
        raise OSError("the system does not report VmData in /proc/self/status; limit_data needs Linux")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (present + budget, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
