"""`StoreLayout`: sizes of a partition store, and where its files have which bytes.

A partition is a record: the values of its nodes and, if they are learnt, the optimizer's state of each, so that both
are read and written at once. Records and reads of edges begin and end at whole blocks of the device.
"""

import json
import math
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from workbench import files
from workbench.core.errors import CorruptFileError, deferred_interrupt
from workbench.features.direct_file import close_with
from workbench.features.learned_rows import state_dtype

BLOCK = 4096
"""Bytes that devices read and write at once; reads are counted in these."""

KIND, VERSION = "partition store", 3

_WITHOUT_BUILD_ID = 2
"""The version before, whose stores have no build id; they can be read and written still."""

HEADER, ROWS, EDGES, TABLE, INDEX, LOCK = "store.json", "rows.bin", "edges.bin", "table.json", "index", "lock"

SPARE_SLOTS = 4
"""Records of a written file beyond those of its partitions: a write goes to a free one, and overwrites nothing."""

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

_INTEGERS = (torch.uint8, torch.int16, torch.int32, torch.int64)


def name_of(dtype: torch.dtype) -> str:
    """Name of a dtype, such as "float32"."""
    return str(dtype).removeprefix("torch.")


DTYPES = {name_of(dtype): dtype for dtype in (*_FLOATS, *_INTEGERS)}


def whole_blocks(nbytes: int) -> int:
    """Round a size up to whole blocks."""
    return -(-nbytes // BLOCK) * BLOCK


def memory_of_slot(nbytes: int, *row_bytes: int) -> int:
    """Memory of a record in a buffer: whole blocks and whole rows, so that the rows of all slots are one tensor.

    Args:
        nbytes: of the record.
        row_bytes: sizes of the rows in it.
    """
    unit = math.lcm(BLOCK, *row_bytes)
    return -(-nbytes // unit) * unit


@dataclass(frozen=True)
class StoreLayout:
    """Sizes of a store.

    Args:
        num_nodes: number of nodes.
        num_partitions: number p of partitions.
        num_train: number of training nodes, which have the first ids; 0 if they are not packed.
        row_shape: shape of a row.
        dtype: name of the rows' dtype, such as "float32".
        learnt: the rows have an optimizer state and are written back.
        num_edges: number of edges.
        edge_type: name of the dtype of edge types; None: the edges have none.
        edge_weight: name of the dtype of edge weights; None: the edges have none.
        build_id: of the call that built the store, which tells it from others that take its path; None: the store was
            written before there were such ids.
    """

    num_nodes: int
    num_partitions: int
    num_train: int
    row_shape: tuple[int, ...]
    dtype: str
    learnt: bool
    num_edges: int
    edge_type: str | None = None
    edge_weight: str | None = None
    build_id: str | None = None

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    @cached_property
    def partition_rows(self) -> int:
        """Nodes per partition s: partition i has the ids from i·s on; the last ones may have fewer or none."""
        return max(1, -(-self.num_nodes // self.num_partitions))

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of the values of one row."""
        return math.prod(self.row_shape) * self.torch_dtype.itemsize

    @property
    def state_dtype(self) -> torch.dtype:
        """The dtype of the state of learnt rows, float32 for rows in half precision."""
        return state_dtype(self.torch_dtype)

    @cached_property
    def state_row_bytes(self) -> int:
        """Bytes of the state of one learnt row."""
        return math.prod(self.row_shape) * self.state_dtype.itemsize

    @cached_property
    def first_state_row(self) -> int:
        """Where the state begins in a record, in rows of the state: after the values, at a whole row."""
        return -(-self.partition_rows * self.row_bytes // self.state_row_bytes)

    @cached_property
    def record_bytes(self) -> int:
        """Bytes of a partition: values, and the state of learnt rows; without padding at the end."""
        if self.learnt:
            return (self.first_state_row + self.partition_rows) * self.state_row_bytes
        return self.partition_rows * self.row_bytes

    @cached_property
    def slot_bytes(self) -> int:
        """Bytes that a partition takes in its file, and that reading or writing it moves."""
        return whole_blocks(self.record_bytes)

    @cached_property
    def num_slots(self) -> int:
        """Records in the file."""
        return self.num_partitions + (SPARE_SLOTS if self.learnt else 0)

    @cached_property
    def num_train_partitions(self) -> int:
        """Partitions with training nodes, the first ones."""
        return -(-self.num_train // self.partition_rows)

    @property
    def remedy(self) -> str:
        """What can be done about a damaged file."""
        return f"restore it, or build the store again{'; trained rows are lost then' if self.learnt else ''}"

    def nodes_of(self, partition: int) -> int:
        """Number of nodes of a partition."""
        return max(0, min(self.partition_rows, self.num_nodes - partition * self.partition_rows))

    @cached_property
    def edge_arrays(self) -> list[tuple[str, torch.dtype]]:
        """Arrays of a bucket, in the order of the file; sources and destinations are offsets in their partitions."""
        arrays = [("edge_ids", torch.int64), ("src", torch.int32), ("dst", torch.int32)]
        for name in ("edge_type", "edge_weight"):
            if (dtype := getattr(self, name)) is not None:
                arrays.append((name, DTYPES[dtype]))
        return sorted(arrays, key=lambda array: -array[1].itemsize)  # each begins at a multiple of its items' size

    @cached_property
    def edge_bytes(self) -> int:
        return sum(dtype.itemsize for _, dtype in self.edge_arrays)

    def save(self, folder: Path) -> None:
        """Write the header of a store."""
        values = asdict(self) | self._stated()
        header = {"kind": KIND, "version": VERSION, **values, "digest": files.digest(values)}
        files.write_new_file(folder / HEADER, json.dumps(header, indent=1))

    @staticmethod
    def open(folder: Path) -> "StoreLayout":
        """Read the header of a store."""
        file = folder / HEADER
        if not file.is_file():
            raise FileNotFoundError(
                f"{file} is missing, so {folder} is not a partition store; pass a folder that "
                "PartitionStore.build wrote"
            )
        values = read_json(file)
        kind, version = values.pop("kind", None), values.pop("version", None)
        if kind != KIND or version not in (VERSION, _WITHOUT_BUILD_ID):
            raise CorruptFileError(
                f"{file} is not the header of a partition store of version {_WITHOUT_BUILD_ID} or {VERSION}, but has "
                f"kind {kind!r} and version {version!r}; open it with the release that wrote it, or build it again"
            )
        checksum = values.pop("digest", None)
        if checksum != files.digest(values):
            raise CorruptFileError(f"{file} was modified: its digest is not {checksum}; build the store again")
        stated = {"state_dtype": values.pop("state_dtype")} if "state_dtype" in values else {}
        layout = StoreLayout(**{**values, "row_shape": tuple(values["row_shape"])})
        if stated != layout._stated():
            raise CorruptFileError(
                f"{file} is that of learnt {layout.dtype} rows whose state is {layout.dtype}, too, which can't be "
                f"trained; build the store again, with a state in {name_of(layout.state_dtype)}"
            )
        return layout

    def _stated(self) -> dict[str, str]:
        """The dtype of the state, for headers of stores where it is not that of the rows."""
        return (
            {"state_dtype": name_of(self.state_dtype)} if self.learnt and self.state_dtype != self.torch_dtype else {}
        )


def read_json(file: Path, *, folder: int | None = None) -> dict[str, Any]:
    """Read the fields of a JSON file.

    Args:
        folder: descriptor of the folder that it is read from; None: the one of its path.

    Raises:
        FileNotFoundError: the file is missing.
        CorruptFileError: the file is damaged.
    """
    path = file if folder is None else file.name
    with open(path, "rb", opener=lambda name, _: os.open(name, os.O_RDONLY, dir_fd=folder)) as opened:
        text = opened.read()
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{file} is not JSON ({error}); build the store again") from error
    if not isinstance(values, dict):
        raise CorruptFileError(f"{file} has no fields; build the store again")
    return values


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
        """Check that the path is still that of this folder, before another folder takes it."""
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
        """Check that no other store has the file that is about to be written."""
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
