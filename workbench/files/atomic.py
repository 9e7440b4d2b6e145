"""Atomic creation and replacement of files and folders, safe against kills, power cuts and concurrent processes.

Contents are written to a hidden sibling of the target, a draft, which is renamed when it is complete. A process holds a
lock on its drafts, so that drafts of killed processes can be told from those still in use.
"""

import hashlib
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from workbench.files.lock import lock_descriptor, opened
from workbench.files.removal import remove

_UNFINISHED = r"\.(?P<target>[^/\0]+)\.[0-9a-f]{32}\.(?P<state>new|old)"
"""Names of drafts (`new`) and of folders that a draft is replacing (`old`); both have the same number."""

Content = str | bytes | Iterable[bytes | memoryview]


def write_file(file: Path, content: Content) -> str:
    """Write a file atomically: readers see the complete new or the old contents, even after a power cut.

    Args:
        file: file to create or replace; missing folders are created.
        content: text (encoded as UTF-8), bytes, or chunks of bytes.

    Returns:
        sha256 of the content.

    Raises:
        OSError: if the file can't be written; it is unchanged then.
    """
    with _draft(file, Path.touch) as draft:
        checksum = write_new_file(draft, content)
        os.replace(draft, file)
    _sync_folder(file.parent)
    return checksum


def write_new_file(file: Path, content: Content) -> str:
    """Write a file of a folder that is not published yet, and sync it to disk.

    Args:
        file: file to create.
        content: text (encoded as UTF-8), bytes, or chunks of bytes.

    Returns:
        sha256 of the content.
    """
    chunks = [content.encode()] if isinstance(content, str) else [content] if isinstance(content, bytes) else content
    checksum = hashlib.sha256()
    with file.open("wb") as out:
        for chunk in chunks:
            checksum.update(chunk)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    return checksum.hexdigest()


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces `target` if the block succeeds; otherwise `target` is unchanged.

    Replacing an existing `target` takes two renames. If the process is killed between them, `target` is missing until
    `restore` is called.

    Args:
        target: folder to create or replace; the caller has checked that it may be replaced.

    Yields:
        The folder to fill.

    Raises:
        OSError: if the folder can't be written; `target` is unchanged then.
    """
    with _draft(target, Path.mkdir) as draft:
        yield draft
        _sync_folder(draft)
        _publish(draft, target)


def restore(target: Path) -> bool:
    """Restore a folder that is missing because a process was killed while `new_folder` replaced it.

    Args:
        target: target of `new_folder`.

    Returns:
        True if the folder was restored.
    """
    for path, replaced, state in [] if target.exists() else _unfinished(target.parent):
        if state == "old" and replaced == target.name:
            with suppress(OSError), _abandoned(path) as abandoned:
                if abandoned:
                    path.rename(target)
                    return True
    return False


def remove_unfinished(folder: Path) -> int:
    """Clean up after killed processes: delete their drafts and restore folders that they were replacing.

    Args:
        folder: parent of the targets of `write_file` and `new_folder`.

    Returns:
        The number of deleted files and folders.
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
def _draft(target: Path, create: Callable[..., None]) -> Iterator[Path]:
    """Create a draft of `target`, locked so that `remove_unfinished` keeps it; delete it unless it was renamed."""
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
        with suppress(FileNotFoundError):  # `remove_unfinished` deleted it before it was locked
            descriptor = os.open(draft, os.O_RDONLY)
            with suppress(OSError):  # a file system without locks: drafts never count as abandoned there
                lock_descriptor(descriptor, wait=True)
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
    """Return drafts and replaced folders, each with the name of its target and its state."""
    with suppress(OSError):  # the folder is missing or not readable
        matches = [(path, re.fullmatch(_UNFINISHED, path.name)) for path in sorted(folder.iterdir())]
        return [(path, match["target"], match["state"]) for path, match in matches if match]
    return []


@contextmanager
def _abandoned(path: Path) -> Iterator[bool]:
    """Yield whether the process that created a draft, or moved a folder aside for one, has ended."""
    with ExitStack() as stack:
        abandoned, flags = True, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with suppress(FileNotFoundError):
            abandoned = lock_descriptor(stack.enter_context(opened(path.with_suffix(".new"), flags)), wait=False)
        yield abandoned


def _sync_folder(folder: Path) -> None:
    """Sync a rename to disk, on file systems that support it."""
    with suppress(OSError), opened(folder, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)
