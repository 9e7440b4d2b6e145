"""Memory of this machine: what is free, so that work too big is refused before it starts, and what work took."""

import ctypes
import gc
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

_CGROUP = Path("/sys/fs/cgroup")
_CLEAR_REFS, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def available_bytes() -> int:
    """Bytes that this process could still take: what the kernel counts as available, or less under a cgroup's limit.

    Where the system does not say (no /proc), all of its physical memory.
    """
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(free, _cgroup_bytes(free))


def _cgroup_bytes(otherwise: int) -> int:
    """What a container's limit leaves; `otherwise` without one."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        return otherwise if limit == "max" else max(0, int(limit) - int((_CGROUP / "memory.current").read_text()))
    except (OSError, ValueError):
        return otherwise


class HostPeak:
    """Most memory that this process held in a `with` block, above what it held when the block began.

        with HostPeak() as peak:
            work()
        peak.nbytes

    It is what the kernel counts as resident: NumPy's arrays, libraries' own memory and the interpreter's objects as
    much as tensors, in whole pages, of all threads. Freed memory that the allocator still holds is given back first,
    else the block would use it unseen. One block at a time: each starts the kernel's count anew. Other processes are
    not counted.

    Args:
        nbytes: of the block, once it is left; None where the system does not say (no /proc).
    """

    def __init__(self) -> None:
        self.nbytes: int | None = None
        self._begin: int | None = None

    def __enter__(self) -> Self:
        self.nbytes = None
        _give_back()
        self._begin = _status_bytes("VmRSS") if _restart_peak() else None
        return self

    def __exit__(self, *error: object) -> None:
        peak = _status_bytes("VmHWM")
        self.nbytes = None if self._begin is None or peak is None else max(0, peak - self._begin)


def _give_back() -> None:
    """Return what the C library keeps of freed memory to the system, where it can be told to."""
    gc.collect()
    with suppress(OSError, AttributeError):  # glibc has malloc_trim, others not
        ctypes.CDLL(None).malloc_trim(0)


def _restart_peak() -> bool:
    """Let the kernel forget the peak so far; whether it did (proc(5), clear_refs)."""
    try:
        _CLEAR_REFS.write_text("5")
    except OSError:
        return False
    return True


def _status_bytes(name: str) -> int | None:
    """A line of /proc/self/status, None without it."""
    try:
        lines = _STATUS.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
    except (OSError, StopIteration):
        return None
