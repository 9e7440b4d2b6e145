"""`AnonymousPeak`: the peak of a process's memory without that of files, sampled in a thread."""

import threading
from typing import Self

from workbench.core.errors import check_at_least
from workbench.meter.host_peak import return_freed_memory, status_bytes


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
