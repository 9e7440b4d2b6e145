"""Memory of this machine that is still free, so that work too big for it is refused before it starts."""

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


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
