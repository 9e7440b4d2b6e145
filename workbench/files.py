"""Files the library makes: written atomically, locked, and deleted only inside folders it owns, under names it made.

Every deletion, replacement and lock of the library goes through this module; a test walks all call sites.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

_UNFINISHED = r"\.(?P<target>[^/\0]+)\.[0-9a-f]{32}\.(?P<state>new|old)"
"""Names of drafts (`new`) and of folders that a draft is replacing (`old`); both share one number."""

Content = str | bytes | Iterable[bytes | memoryview]


def digest(*parts: Any) -> str:
    """16 hex digits of the sha256 of JSON values: a name made from anything, safe in every folder.

    >>> digest("../x")
    '407cf666ec8fe0f8'
    """
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def remove(path: Path, *, inside: Path, named: str) -> None:
    """Delete a file or folder that the library made, if it exists; a symbolic link is deleted, never followed.

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
    while path.is_dir() and not path.is_symlink():
        with suppress(FileNotFoundError):  # another process deletes it, too
            shutil.rmtree(path)
    path.unlink(missing_ok=True)


def write_file(file: Path, content: Content) -> str:
    """Write a file so that readers see all of it or what was there before, even after a power cut.

    Args:
        file: to create or replace; missing folders are created.
        content: text (UTF-8), bytes, or pieces of them.

    Returns:
        sha256 of the content.

    Raises:
        OSError: it cannot be written; `file` is unchanged.
    """
    with _draft(file, Path.touch) as draft:
        checksum = write_new_file(draft, content)
        os.replace(draft, file)
    _sync_folder(file.parent)
    return checksum


def write_new_file(file: Path, content: Content) -> str:
    """Write a file of a folder that is not published yet, down to the disk; returns the sha256 of its content."""
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

    A process killed between the two renames that replace an existing `target` leaves none until `restore` is called.

    Args:
        target: to create or replace; the caller has checked that it may be replaced.

    Yields:
        The empty folder.

    Raises:
        OSError: it cannot be written; `target` is unchanged.
    """
    with _draft(target, Path.mkdir) as draft:
        yield draft
        _sync_folder(draft)
        _publish(draft, target)


def restore(target: Path) -> bool:
    """Bring back a folder that is missing because a process was killed while `new_folder` replaced it.

    Args:
        target: as given to `new_folder`.

    Returns:
        Whether it was brought back.
    """
    for path, replaced, state in [] if target.exists() else _unfinished(target.parent):
        if state == "old" and replaced == target.name:
            with suppress(OSError), _abandoned(path) as abandoned:
                if abandoned:
                    path.rename(target)
                    return True
    return False


def remove_unfinished(folder: Path) -> int:
    """Clean up after killed processes: delete drafts, bring back what they replaced; those of the living are spared.

    Args:
        folder: whose direct children `write_file` and `new_folder` write.

    Returns:
        How many files and folders were deleted.
    """
    removed = 0
    for path, target, state in _unfinished(folder):
        if state == "old" and (restore(folder / target) or not (folder / target).exists()):
            continue  # it is, or may be, the only copy
        with suppress(OSError), _abandoned(path) as abandoned:
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

    Raises:
        OSError: the file cannot be created or locked.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with _opened(file, os.O_RDWR | os.O_CREAT) as descriptor:
            held = _lock(descriptor, wait)
            if held and not os.fstat(descriptor).st_nlink:
                continue  # the last holder deleted the file after it was opened here: the name is another file's now
            try:
                yield held
            finally:
                with suppress(OSError):
                    if held:
                        remove(file, inside=file.parent, named=re.escape(file.name))
            return


@contextmanager
def _draft(target: Path, create: Callable[..., None]) -> Iterator[Path]:
    """A hidden sibling of `target`, locked so that `remove_unfinished` spares it; deleted unless it was renamed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft, descriptor = _create_locked(target, create)
    try:
        yield draft
    finally:
        with suppress(OSError):
            remove(draft, inside=target.parent, named=_UNFINISHED)
        os.close(descriptor)


def _create_locked(target: Path, create: Callable[..., None]) -> tuple[Path, int]:
    while True:
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}.new")
        create(draft, exist_ok=False)
        with suppress(FileNotFoundError):  # `remove_unfinished` took it for abandoned before it was locked
            descriptor = os.open(draft, os.O_RDONLY)
            with suppress(OSError):  # a file system without locks: no draft is ever taken for abandoned there
                _lock(descriptor, wait=True)
            if draft.exists():
                return draft, descriptor
            os.close(descriptor)


def _publish(draft: Path, target: Path) -> None:
    replaced = draft.with_suffix(".old")
    try:
        if target.exists():
            target.rename(replaced)
        draft.rename(target)
        _sync_folder(target.parent)
    finally:
        if not target.exists() and replaced.exists():
            replaced.rename(target)
        with suppress(OSError):
            remove(replaced, inside=target.parent, named=_UNFINISHED)


def _unfinished(folder: Path) -> list[tuple[Path, str, str]]:
    """Drafts and replaced folders, each with the name of its target and its state."""
    with suppress(OSError):  # a folder that is missing, or must not be listed
        found = [(path, re.fullmatch(_UNFINISHED, path.name)) for path in sorted(folder.iterdir())]
        return [(path, match["target"], match["state"]) for path, match in found if match]
    return []


@contextmanager
def _abandoned(path: Path) -> Iterator[bool]:
    """Whether the process that made a draft, or moved a folder aside for one, has ended."""
    with ExitStack() as stack:
        abandoned, flags = True, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with suppress(FileNotFoundError):
            abandoned = _lock(stack.enter_context(_opened(path.with_suffix(".new"), flags)), wait=False)
        yield abandoned


def _lock(descriptor: int, wait: bool) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where the file system can."""
    with suppress(OSError), _opened(folder, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)
