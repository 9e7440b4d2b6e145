"""Locks of a store: those of points, and those waited for only so long that no stopped process stops all others."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
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


@contextmanager
def claimed(file: Path, wait: bool, explain: Callable[[OSError], StoreError]) -> Iterator[bool]:
    """Hold the lock of a point; errors of the block pass, whatever happens to the lock.

    Args:
        file: of the lock.
        wait: until it is free.
        explain: from an error of the operating system.

    Yields:
        Whether the lock is held.

    Raises:
        StoreError: the file cannot be created or locked.
    """
    lock = ExitStack()
    try:
        mine = lock.enter_context(locked(file, wait=wait))
    except OSError as error:
        raise explain(error) from None
    try:
        yield mine
    finally:
        with suppress(OSError):  # if its folder is gone, so is the lock
            lock.close()
