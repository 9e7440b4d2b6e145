"""`StoreFolder`: the folder of an opened store, known by its descriptor, whatever its path names later.

A path is not an identity: links give one folder several, and a rebuilt store takes that of another. All files of a
store are opened relative to the descriptor, so that what one handle reads and writes is of one store; the id of the
build in its header tells the store from one that has replaced it.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from workbench import files
from workbench.core.errors import CorruptFileError
from workbench.core.interrupts import deferred_interrupt
from workbench.features.direct_file import close_with
from workbench.outofcore.store_layout import HEADER, LOCK, ROWS, read_json

_written: set["StoreFolder"] = set()
"""Folders that are being written to. An epoch that is garbage, in a cycle with its folder, is closed after the folder's
descriptor would be: it is kept until the rows are written."""


class StoreFolder:
    """An opened folder of a store.

    Args:
        path: of the folder.
        build_id: of the store that is expected there.

    Raises:
        FileNotFoundError: the folder is missing.
        ValueError: the store was rebuilt since its handle was opened.
    """

    def __init__(self, path: Path, build_id: str | None) -> None:
        self.path, self._build_id = path, build_id
        files.restore(path)  # or wait until another process has replaced it
        try:
            with deferred_interrupt():  # the descriptor always has an owner
                self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
                close_with(self, self.descriptor)
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(
                f"{path} is missing: the store was moved or deleted since this handle was opened; open it again where "
                "it is now"
            ) from None
        self.check_build()

    def check_build(self) -> None:
        """Check that the folder has the store that was opened.

        Raises:
            FileNotFoundError: the folder was deleted, or has no header.
            ValueError: it has another store.
        """
        try:
            header = read_json(self.path / HEADER, folder=self.descriptor)
        except FileNotFoundError:
            raise self.gone(HEADER) from None
        if header.get("build_id") != self._build_id:
            raise ValueError(self._rebuilt)

    @property
    def _rebuilt(self) -> str:
        return f"{self.path} was rebuilt since this handle was opened; open it again"

    def gone(self, name: str) -> Exception:
        """The error of a file that this folder does not have any more: another store may have its path."""
        files.restore(self.path)
        try:
            replaced = read_json(self.path / HEADER).get("build_id") != self._build_id
        except (OSError, CorruptFileError):
            replaced = False
        if replaced:
            return ValueError(self._rebuilt)
        return FileNotFoundError(
            f"{self.path / name} is missing; restore it, or open the store again where it is now, if it was moved"
        )

    def check_path(self) -> None:
        """Check that the path is still that of this folder, before another folder takes it.

        Raises:
            FileExistsError: it is not.
        """
        try:
            same = os.path.samestat(os.stat(self.path), os.fstat(self.descriptor))
        except FileNotFoundError:
            same = True  # nothing is replaced
        if not same:
            raise FileExistsError(
                f"{self.path} was replaced by another process in the meantime, and is not replaced again; open it, or "
                "pass another folder"
            )

    def check_not_linked(self) -> None:
        """Check that no other store has the file that is about to be written.

        Raises:
            ValueError: its file has several hard links, as in a copy by `cp -l`.
        """
        if (links := os.stat(ROWS, dir_fd=self.descriptor).st_nlink) > 1:
            raise ValueError(
                f"{self.path / ROWS} has {links} hard links, so that writing would damage another store that shares "
                "it; copy the folder with cp -r, and open the copy"
            )

    @property
    def writable(self) -> bool:
        """Whether this process may write to the store, as it may not on a file system that is only read."""
        return all(os.access(name, os.W_OK, dir_fd=self.descriptor) for name in (".", ROWS))

    def open_to_write(self, name: str, *, direct: bool) -> int:
        """Open a file of the folder, and return its descriptor."""
        return os.open(name, os.O_WRONLY | (os.O_DIRECT if direct else 0), dir_fd=self.descriptor)

    def stamp_of(self, name: str) -> tuple[int, ...]:
        """What differs when a file is replaced by another: its inode, size and times.

        Raises:
            FileNotFoundError: it is missing.
        """
        try:
            status = os.stat(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            raise self.gone(name) from None
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def check_size(self, name: str, nbytes: int, remedy: str) -> None:
        """Check the size of a file.

        Args:
            name: of the file.
            nbytes: its size.
            remedy: what can be done if it has another.

        Raises:
            FileNotFoundError: it is missing.
            ValueError: the store was rebuilt since its handle was opened.
            CorruptFileError: it has another size.
        """
        try:
            size = os.stat(name, dir_fd=self.descriptor).st_size
        except FileNotFoundError:
            raise self.gone(name) from None
        if size != nbytes:
            self.check_build()
            raise CorruptFileError(
                f"{self.path / name} has {size} bytes, but {nbytes} belong to the store's header; {remedy}"
            )

    def write(self, name: str, content: str) -> None:
        """Replace a file atomically, also across a power cut."""
        files.write_in_folder(self.descriptor, name, content)

    @contextmanager
    def writing_alone(self, purpose: str) -> Iterator[None]:
        """Exclude other processes and buffers from writing to the store, or replacing it, while the block runs.

        Args:
            purpose: "writes to" or "replaces", for those that are refused meanwhile.

        Raises:
            ValueError: another process or buffer does; the message says which.
            FileNotFoundError: the store was deleted.
            OSError: the folder is not writable, or its file system has no locks.
        """
        with ExitStack() as stack:
            try:
                lock = files.locked_folder(self.descriptor, LOCK, json.dumps({**_this_process(), "purpose": purpose}))
                note = stack.enter_context(lock)
            except FileNotFoundError:
                raise self.gone(LOCK) from None
            except OSError as error:
                text = f"{error.strerror} when locking the store; make its folder writable, or copy it to another disk"
                raise OSError(error.errno, text, str(self.path / LOCK)) from None
            if note is not None:
                raise ValueError(_held(note, self.path))
            self.check_build()
            _written.add(self)
            stack.callback(_written.discard, self)
            yield


def _this_process() -> dict[str, Any]:
    return {"process": os.getpid(), "host": socket.gethostname()}


def _held(note: str, path: Path) -> str:
    """Who holds the lock of a store, from the note that it left, and what can be done."""
    try:
        known = json.loads(note)
        process, host, purpose = int(known["process"]), str(known["host"]), str(known["purpose"])
    except (ValueError, KeyError, TypeError):  # it is writing the note at this moment
        return f"another process writes to {path}; wait until it has ended"
    if {"process": process, "host": host} == _this_process():
        return f"another buffer or call of this process {purpose} {path}; finish its loop or close() it first"
    return f"another process ({process} on {host}) {purpose} {path}; wait until it has ended, or end it"
