"""Files the library makes: written atomically, locked, and deleted only inside folders it owns, under names it made.

Every deletion, every replacement and every lock of the library goes through this module; a test walks all call sites.
It imports the standard library alone, so that any package may use it.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_UNFINISHED = r"\.[^/\0]+\.[0-9a-f]{32}\.(new|old)"
"""Names of what is still being written, or was replaced and is about to go; a killed process leaves them behind."""

Content = str | bytes | Iterable[bytes | memoryview]


def digest(*parts: Any) -> str:
    """16 hex digits of the sha256 of JSON values: a name made from anything, safe in every folder.

    >>> digest("../x")
    '407cf666ec8fe0f8'
    """
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def remove(path: Path, *, inside: Path, named: str) -> None:
    """Delete a file or folder that the library made; nothing happens if it does not exist.

    A symbolic link is deleted, never followed.

    Args:
        path: a direct child of `inside`.
        inside: the folder the library owns.
        named: regular expression that the child's whole name must match.

    Raises:
        ValueError: `path` is not such a child; nothing is deleted.
        OSError: it cannot be deleted.
    """
    if path.parent != inside or path.name in ("", ".", "..") or not re.fullmatch(named, path.name):
        raise ValueError(f"{path} is not deleted: it is not a child of {inside} with a name like {named}")
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_file(file: Path, content: Content) -> str:
    """Write a file so that readers see all of it or what was there before, even after a power cut.

    Args:
        file: to create or replace; missing folders are created.
        content: text (UTF-8), bytes, or pieces of them.

    Returns:
        sha256 of the content.

    Raises:
        OSError: it cannot be written; what was there before is unchanged.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = _unfinished(file, "new")
    try:
        checksum = write_new_file(draft, content)
        os.replace(draft, file)
    except BaseException:
        with suppress(OSError):
            remove(draft, inside=file.parent, named=_UNFINISHED)
        raise
    _sync_folder(file.parent)
    return checksum


def write_new_file(file: Path, content: Content) -> str:
    """Write a file of a folder that is not published yet, down to the disk; its sha256."""
    pieces = [content.encode()] if isinstance(content, str) else [content] if isinstance(content, bytes) else content
    checksum = hashlib.sha256()
    with file.open("wb") as out:
        for piece in pieces:
            checksum.update(piece)
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())
    return checksum.hexdigest()


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill that takes the place of `target` when the block succeeds; otherwise `target` is as it was.

    The folder is a hidden sibling, locked while it is being filled, so that `remove_unfinished` can tell it from one
    that a killed process left behind.

    Args:
        target: to create or replace; the caller has checked that it may be replaced.

    Yields:
        The empty folder.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    building, replaced = _unfinished(target, "new"), _unfinished(target, "old")
    building.mkdir()
    descriptor = os.open(building, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield building
        _sync_folder(building)
        if target.exists():
            target.rename(replaced)
        building.rename(target)
        _sync_folder(target.parent)
    except BaseException:
        if replaced.exists() and not target.exists():
            replaced.rename(target)
        raise
    finally:
        os.close(descriptor)
        for rest in (building, replaced):
            with suppress(OSError):
                remove(rest, inside=target.parent, named=_UNFINISHED)


def remove_unfinished(folder: Path) -> int:
    """Delete what killed processes left half-written in a folder; returns how many files and folders that were.

    Args:
        folder: whose direct children `write_file` and `new_folder` write.
    """
    removed = 0
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        if re.fullmatch(_UNFINISHED, path.name) and not path.is_symlink() and path.is_dir():
            with suppress(OSError), _unless_in_use(path) as abandoned:
                if abandoned:
                    remove(path, inside=folder, named=_UNFINISHED)
                    removed += 1
    return removed


@contextmanager
def locked(file: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a name while the block runs; it is released when the process ends, however it ends.

    Args:
        file: the lock's own file, which exists only while somebody holds or wants it; its folder is created.
        wait: until it is free; otherwise the block runs at once, without the lock if another process holds it.

    Yields:
        Whether the lock is held.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _acquire(file, wait)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            remove(file, inside=file.parent, named=re.escape(file.name))  # while it is held: see `_acquire`
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


@contextmanager
def _unless_in_use(folder: Path) -> Iterator[bool]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _unfinished(path: Path, state: str) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.{state}")


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where the file system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
