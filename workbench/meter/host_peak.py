"""`HostPeak`: the peak resident memory of a block, as counted by the operating system."""

import ctypes
import gc
from contextlib import suppress
from pathlib import Path
from typing import Self

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
