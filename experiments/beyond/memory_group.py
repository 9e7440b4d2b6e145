"""A limit of memory that the system enforces on a process: a control group, of version 1 or 2."""

import os
import time
from itertools import count
from pathlib import Path
from typing import Self

_ROOT = Path("/sys/fs/cgroup")

_OLD = {"limit": "memory.limit_in_bytes", "swap": "memory.memsw.limit_in_bytes", "peak": "memory.max_usage_in_bytes"}
_NEW = {"limit": "memory.max", "swap": "memory.swap.max", "peak": "memory.peak"}

_RELEASE_SECONDS = 5.0  # in which the system forgets a process that has ended

_numbers = count()


class MemoryGroup:
    """A control group for a process that calls `join` before it allocates anything.

        with MemoryGroup(1 << 30) as group:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=group.join) as pool:
                pool.submit(work).result()  # BrokenProcessPool: it was killed

    The limit holds for what the process allocates and for the pages of files that it was the first to read; if both
    don't fit, pages of files are dropped, and if that does not help, the process is killed. Nothing is swapped.

    Args:
        limit_bytes: the limit.
        root: where control groups are mounted.

    Raises:
        PermissionError: on entry, if this user may not create control groups, or there are none.
    """

    def __init__(self, limit_bytes: int, root: Path = _ROOT) -> None:
        old = (root / "memory").is_dir()
        self._limit_bytes, self._names = limit_bytes, _OLD if old else _NEW
        self._folder = (root / "memory" if old else root) / f"workbench-{os.getpid()}-{next(_numbers)}"

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir()
            self._file("limit").write_text(str(self._limit_bytes))
            if self._file("swap").exists():  # version 1 limits the sum of both, version 2 swap alone
                self._file("swap").write_text(str(self._limit_bytes) if self._names is _OLD else "0")
        except OSError as error:
            if self._folder.is_dir():
                self._folder.rmdir()
            raise PermissionError(
                f"can't limit memory to {self._limit_bytes} B by the control group {self._folder} ({error}); run as "
                "root on Linux with control groups of memory mounted, or set limit_mib to null for no limit"
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        end = time.monotonic() + _RELEASE_SECONDS
        while True:
            try:
                self._folder.rmdir()
                return
            except OSError:  # the process is still ending
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def join(self) -> None:
        """Move this process into the group."""
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))

    @property
    def peak_bytes(self) -> int:
        """The most memory that the group has had at once, pages of files included."""
        return int(self._file("peak").read_text())

    def _file(self, name: str) -> Path:
        return self._folder / self._names[name]
