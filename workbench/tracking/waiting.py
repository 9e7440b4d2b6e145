"""Locks that are waited for only so long: a stopped process that holds one must not stop all others."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.files import locked
from workbench.tracking.store import StoreError

LOCK_SECONDS = 20.0

_POLL_SECONDS = 0.05


@contextmanager
def locked_soon(file: Path, seconds: float | None = None) -> Iterator[None]:
    """Hold the lock of a file that others hold only for a moment.

    Args:
        file: of the lock.
        seconds: to wait for it; None: `LOCK_SECONDS`.

    Raises:
        StoreError: another process still holds it.
    """
    limit = LOCK_SECONDS if seconds is None else seconds
    deadline = time.monotonic() + limit
    while True:
        with locked(file, wait=False) as mine:
            if mine:
                yield
                return
        if time.monotonic() > deadline:
            raise StoreError(
                f"{file.parent} is locked: another process has held {file.name} for {limit:.0f} s; end it and try again"
            )
        time.sleep(_POLL_SECONDS)
