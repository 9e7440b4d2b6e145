"""File locks, which are released when their process ends, in whatever way."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from workbench.files.removal import remove


@contextmanager
def locked(file: Path, *, wait: bool = True) -> Iterator[bool]:
    """Lock a name for the duration of a `with` block.

    Args:
        file: the lock file, which exists only while a process holds or waits for the lock; its folder is created.
        wait: wait until the lock is free; otherwise the block runs immediately, with or without the lock.

    Yields:
        True if the lock was acquired.

    Raises:
        OSError: if the file can't be created or locked.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with opened(file, os.O_RDWR | os.O_CREAT) as descriptor:
            acquired = lock_descriptor(descriptor, wait)
            if acquired and not os.fstat(descriptor).st_nlink:
                continue  # the previous holder deleted the file after it was opened here; lock the new one
            try:
                yield acquired
            finally:
                with suppress(OSError):
                    if acquired:
                        remove(file, inside=file.parent, named=re.escape(file.name))
            return


def lock_descriptor(descriptor: int, wait: bool) -> bool:
    """Lock an open file, and return whether that succeeded; without `wait` it fails if the file is locked already."""
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """Open a file descriptor for the duration of a `with` block."""
    descriptor = os.open(path, flags, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
