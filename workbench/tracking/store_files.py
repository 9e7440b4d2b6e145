"""Files of a store: locks, which a stopped process does not hold for ever, and the artifacts of runs."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath

from workbench.files import locked, write_file
from workbench.tracking.store import Artifacts, StoreError

LOCK_SECONDS = 20.0

_POLL_SECONDS = 0.05


@contextmanager
def lock_with_timeout(file: Path, seconds: float | None = None) -> Iterator[None]:
    """Acquire a lock that processes normally hold only briefly.

    Args:
        file: lock file.
        seconds: timeout; by default `LOCK_SECONDS`.

    Raises:
        StoreError: if another process holds the lock until the timeout.
    """
    limit = LOCK_SECONDS if seconds is None else seconds
    deadline = time.monotonic() + limit
    while True:
        with locked(file, wait=False) as acquired:
            if acquired:
                yield
                return
        if time.monotonic() > deadline:
            raise StoreError(
                f"{file.parent} is locked: another process has held {file.name} for {limit:.0f} s; end it and try again"
            )
        time.sleep(_POLL_SECONDS)


@contextmanager
def point_lock(file: Path, wait: bool, explain: Callable[[OSError], StoreError]) -> Iterator[bool]:
    """Try to lock a point; exceptions of the block propagate even if releasing the lock fails.

    Args:
        file: lock file.
        wait: wait until the lock is free.
        explain: converts an error of the operating system to a StoreError.

    Yields:
        True if the lock was acquired.

    Raises:
        StoreError: if the file can't be created or locked.
    """
    stack = ExitStack()
    try:
        acquired = stack.enter_context(locked(file, wait=wait))
    except OSError as error:
        raise explain(error) from None
    try:
        yield acquired
    finally:
        with suppress(OSError):  # if the folder was deleted, the lock is gone as well
            stack.close()


_CHUNK_BYTES = 1 << 20


def write_artifacts(folder: Path, artifacts: Artifacts) -> None:
    """Write a run's files, each atomically and synced to disk, so that a power cut does not leave empty files.

    Args:
        folder: folder of the run's artifacts.
        artifacts: contents, or files to copy, by name.

    Raises:
        ValueError: if a name points outside the folder; nothing is written then.
    """
    for name in artifacts:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(f"artifact {name!r} would be outside of its run; pass a name relative to the run")
    for name, content in artifacts.items():
        write_file(folder / name, _chunks(content) if isinstance(content, Path) else content.encode(errors="replace"))


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            yield chunk
