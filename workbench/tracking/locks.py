"""Locks of the operating system on files: released when their process ends, however it ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(file: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a name while the block runs; the file is there only while somebody holds or wants it.

    Args:
        file: made if need be, its folder too.
        wait: until it is free; otherwise the block runs at once, without the lock if another holds it.

    Yields:
        Whether the lock is held.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _acquire(file, wait)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            file.unlink(missing_ok=True)  # while it is held: see `_acquire`
            os.close(descriptor)


def _acquire(file: Path, wait: bool) -> int | None:
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the last holder removed it after it was opened here: the name is another file's now
