"""Available host memory, and a check that rejects work that would not fit before anything is allocated."""

import os
from pathlib import Path

from workbench.core.errors import CapacityError
from workbench.core.units import format_bytes

_UNCHECKED_BYTES = 1 << 28  # smaller allocations are not worth reading /proc/meminfo
_CGROUP = Path("/sys/fs/cgroup")


def check_fits(name: str, nbytes: int, remedy: str) -> None:
    """Check that an allocation fits into the available host memory.

    Args:
        name: the object to allocate, for the message.
        nbytes: its size in bytes, or a lower bound of it.
        remedy: end of the message: how to need less memory.

    Raises:
        CapacityError: if less than `nbytes` is available; the message names both numbers.
    """
    if nbytes > _UNCHECKED_BYTES and nbytes > (free := available_bytes()):
        raise CapacityError(f"{name} needs {format_bytes(nbytes)}, but only {format_bytes(free)} is free; {remedy}")


def available_bytes() -> int:
    """Return the bytes of host memory that this process can still allocate: `MemAvailable`, capped by a cgroup limit.

    On systems without /proc it returns the machine's physical memory.
    """
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(free, _cgroup_bytes(free))


def _cgroup_bytes(default: int) -> int:
    """Return the bytes left under the container's memory limit, or `default` if there is no limit."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        return default if limit == "max" else max(0, int(limit) - int((_CGROUP / "memory.current").read_text()))
    except (OSError, ValueError):
        return default
