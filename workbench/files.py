"""Files of the library: written atomically, locked, and deleted only inside folders the library owns.

Files and folders are created and replaced as a whole, whatever is killed, loses power or runs at the same time: they
are written as a draft, a hidden sibling of the target, which is renamed when complete. A process locks its drafts, so
that those of killed processes can be told from those still in use. Locks end with their process, in whatever way.

Every deletion, replacement and lock of the library goes through this file; a test walks all call sites.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

_UNFINISHED = r"\.(?P<target>[^/\0]+)\.[0-9a-f]{32}\.(?P<state>new|old)"
"""Names of drafts (`new`) and of folders that a draft is replacing (`old`); both have the same number."""

_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
"""Errors of a rename to a name that a folder with files, or a file, has."""

_SWAP_SECONDS = 0.2
"""Most time for which a folder is waited for that another process is replacing, which takes two renames."""

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
    checksum = hashlib.sha256()
    with file.open("wb") as out:
        for chunk in _chunks_of(content):
            checksum.update(chunk)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    return checksum.hexdigest()


def write_in_folder(folder: int, name: str, content: Content) -> None:
    """Write a file of an open folder as `write_file` does: of this folder, whatever its path names by now.

    Args:
        folder: descriptor of the folder.
        name: of the file to create or replace.
        content: text (encoded as UTF-8), bytes, or chunks of bytes.

    Raises:
        OSError: if the file can't be written, as in a folder that was deleted; it is unchanged then.
    """
    draft = _draft_of(Path(name)).name
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
    try:
        with suppress(OSError):
            lock_descriptor(descriptor, wait=True)
        with os.fdopen(os.dup(descriptor), "wb") as out:
            for chunk in _chunks_of(content):
                out.write(chunk)
        os.fsync(descriptor)
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):  # an interrupt may have come after the replacement
            os.unlink(draft, dir_fd=folder)
        raise
    finally:
        os.close(descriptor)
    with suppress(OSError):
        os.fsync(folder)


@contextmanager
def new_folder(target: Path, *, replace: bool = True) -> Iterator[Path]:
    """Yield an empty folder that becomes `target` if the block succeeds; otherwise `target` is unchanged.

    Replacing an existing `target` takes two renames. If the process is killed between them, `target` is missing until
    `restore` is called.

    Args:
        target: folder to create or replace; the caller has checked that it may be replaced.
        replace: replace what `target` is when the new folder is complete; otherwise a folder that another process has
            created meanwhile remains.

    Yields:
        The folder to fill.

    Raises:
        FileExistsError: `target` was created meanwhile, and is not replaced.
        OSError: if the folder can't be written; `target` is unchanged then.
    """
    with _draft(target, Path.mkdir) as draft:
        yield draft
        _sync_folder(draft)
        while not _publish(draft, target, replace):
            if not replace:
                raise FileExistsError(
                    f"{target} was created by another process in the meantime, and is not replaced; open it, or pass "
                    "another folder"
                )


def _chunks_of(content: Content) -> Iterable[bytes | memoryview]:
    return [content.encode()] if isinstance(content, str) else [content] if isinstance(content, bytes) else content


def restore(target: Path) -> bool:
    """Restore a folder that is missing because a process was killed while `new_folder` replaced it.

    If a process is replacing it at this moment, wait until it has.

    Args:
        target: target of `new_folder`.

    Returns:
        True if the folder was restored.
    """
    deadline = time.monotonic() + _SWAP_SECONDS
    while not target.exists():
        moved = [path for path, of, state in _unfinished(target.parent) if state == "old" and of == target.name]
        for path in moved:
            with suppress(OSError), _abandoned(path) as abandoned:
                if abandoned and not target.exists():
                    path.rename(target)
                    return True
        if not moved or time.monotonic() > deadline:
            break
        time.sleep(0.001)
    return False


def remove_unfinished(folder: Path, *, of: str | None = None) -> int:
    """Clean up after killed processes: delete their drafts and restore folders that they were replacing.

    Args:
        folder: parent of the targets of `write_file` and `new_folder`.
        of: name of the only target to clean up after; None: all.

    Returns:
        The number of deleted files and folders.
    """
    removed = 0
    for path, target, state in _unfinished(folder):
        if of not in (None, target):
            continue
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
        draft = _draft_of(target)
        create(draft, exist_ok=False)
        with suppress(FileNotFoundError):  # `remove_unfinished` deleted it before it was locked
            descriptor = os.open(draft, os.O_RDONLY)
            with suppress(OSError):  # a file system without locks: drafts never count as abandoned there
                lock_descriptor(descriptor, wait=True)
            if draft.exists():
                return draft, descriptor
            os.close(descriptor)


def _draft_of(target: Path) -> Path:
    return target.with_name(f".{target.name}.{uuid.uuid4().hex}.new")


def _publish(draft: Path, target: Path, replace: bool) -> bool:
    """Rename a draft, and return whether that succeeded; it fails where another process was the first to do so."""
    replaced = draft.with_suffix(".old")
    try:
        if replace:
            with suppress(FileNotFoundError):
                target.rename(replaced)
        try:
            draft.rename(target)  # only over nothing, or an empty folder
        except OSError as error:
            if error.errno in _TAKEN and target.exists():
                return False
            raise
        _sync_folder(target.parent)
        return True
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


def remove(path: Path, *, inside: Path, named: str) -> None:
    """Delete a file or folder that the library created, if it exists; symbolic links are deleted, never followed.

    Args:
        path: a direct child of `inside`.
        inside: a folder that the library owns.
        named: regular expression that must match the child's whole name.

    Raises:
        ValueError: if `path` is not such a child; nothing is deleted then.
        OSError: if it can't be deleted.
    """
    if path.parent != inside or path.name in ("", ".", "..") or not re.fullmatch(named, path.name):
        raise ValueError(f"{path} is not deleted: it must be a child of {inside} with a name that matches {named}")
    while path.is_dir() and not path.is_symlink():
        with suppress(FileNotFoundError):  # another process is deleting it, too
            shutil.rmtree(path)
    path.unlink(missing_ok=True)


_SETTLED_SECONDS = 2.0


class FileStamp(NamedTuple):
    """Size, times and inode of a file.

    Size and modification time alone are not enough: `cp -p`, `rsync -t` and `tar` set the time of another file. Those,
    and every write, set the time of change, which no program can choose; a renamed file has an inode of its own.

    Args:
        size: bytes.
        mtime_ns: time of modification, nanoseconds since 1970.
        ctime_ns: time of change, of contents or attributes.
        inode: number of the file in its file system.
    """

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @staticmethod
    def of(path: Path) -> "FileStamp":
        """Return the stamp of a file as it is now."""
        stat = path.stat()
        return FileStamp(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)

    @property
    def changed_seconds(self) -> float:
        """When contents or attributes changed last, seconds since 1970."""
        return max(self.mtime_ns, self.ctime_ns) / 1e9

    @property
    def is_settled(self) -> bool:
        """Whether a later change gives another stamp: one made right after the last may have the same times."""
        return time.time() - self.changed_seconds > _SETTLED_SECONDS


def digest(*parts: Any) -> str:
    """Return 16 hex digits of the sha256 of JSON values: a safe file name for any value.

    >>> digest("../x")
    '407cf666ec8fe0f8'
    """
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
