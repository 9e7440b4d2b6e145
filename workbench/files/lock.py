"""File locks, which are released when their process ends, in whatever way."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from workbench.files.removal import remove

_descriptors: set[int] = set()
"""Open lock files of this process; forked children close them, so that a lock ends with the process that holds it."""


@contextmanager
def locked(file: Path, *, wait: bool = True) -> Iterator[bool]:
    """Lock a name for the duration of a `with` block.

    The lock is that of a file in `file.parent`: paths that name this folder by a link share it.

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
        with _opened_here(file) as descriptor:
            acquired = lock_descriptor(descriptor, wait)
            if acquired and not os.fstat(descriptor).st_nlink:
                continue  # the previous holder deleted the file after it was opened here; lock the new one
            process = os.getpid()
            try:
                yield acquired
            finally:
                with suppress(OSError):
                    if acquired and os.getpid() == process:
                        remove(file, inside=file.parent, named=re.escape(file.name))
            return


@contextmanager
def locked_folder(folder: int, name: str, note: str) -> Iterator[str | None]:
    """Lock a file of an open folder for the duration of a `with` block, without waiting.

    The folder is known by its descriptor, not by a path: all paths of it share the lock, wherever it is moved to.

    Args:
        folder: descriptor of the folder.
        name: the lock file, which is created if it is missing, and remains.
        note: who locks it, for those that find it locked.

    Yields:
        None if the lock was acquired, otherwise the note of the process that holds it.

    Raises:
        OSError: if the file can't be created or locked.
    """
    with _opened_here(Path(name), folder) as descriptor:
        if not lock_descriptor(descriptor, wait=False):
            yield os.pread(descriptor, 1000, 0).decode(errors="replace").strip()
            return
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, note.encode(), 0)
        yield None


@contextmanager
def _opened_here(file: Path, folder: int | None = None) -> Iterator[int]:
    """Open a lock file for the duration of a `with` block; forked children neither keep nor release its lock."""
    process, descriptor = os.getpid(), os.open(file, os.O_RDWR | os.O_CREAT, 0o666, dir_fd=folder)
    _descriptors.add(descriptor)
    try:
        yield descriptor
    finally:
        if os.getpid() == process:
            _descriptors.discard(descriptor)
            os.close(descriptor)


def _close_in_child() -> None:
    for descriptor in _descriptors:
        with suppress(OSError):
            os.close(descriptor)
    _descriptors.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


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
