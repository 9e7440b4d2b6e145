"""`PartitionFile`: the rows of a partition store, a record per partition, read and written whole.

A write goes to a free slot of the file and is then committed by an atomic replacement of the table that says which slot
each partition is in. A process that is killed at any moment leaves every partition as it was last committed.
"""

import errno
import json
import os
import threading
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import xxhash
from torch import Tensor

from workbench import files
from workbench.core.errors import CorruptFileError
from workbench.features.direct_file import DirectFile
from workbench.outofcore.store_layout import BLOCK, ROWS, TABLE, StoreLayout, read_json


def block_aligned(nbytes: int) -> Tensor:
    """Allocate uint8 [nbytes] from a multiple of a block on, as direct reads and writes require."""
    memory = torch.empty(nbytes + BLOCK, dtype=torch.uint8)
    start = -memory.data_ptr() % BLOCK
    return memory[start : start + nbytes]


def as_bytes(memory: Tensor) -> memoryview:
    """The bytes of a contiguous uint8 tensor."""
    return memoryview(memory.numpy())  # type: ignore[arg-type]


class PartitionFile:
    """Reads and writes records by partition, from any number of threads.

    Args:
        folder: of the store.
        layout: its sizes.
        direct: read and write past the page cache; "auto": where the file system can.
        verify: compare the checksum of every record that is read.

    Raises:
        FileNotFoundError: a file is missing.
        CorruptFileError: the file or the table has another size than the header says.
        ValueError: `direct` is True, but the file system does not support O_DIRECT.
    """

    def __init__(
        self, folder: Path, layout: StoreLayout, *, direct: bool | Literal["auto"] = "auto", verify: bool = True
    ) -> None:
        self._folder, self._layout, self._verify = folder, layout, verify
        self._path = folder / ROWS
        check_size(self._path, layout.num_slots * layout.slot_bytes)
        self._file = DirectFile(self._path, direct=direct)
        self._changed, self._writing = threading.Condition(), set[int]()
        self.refresh()

    @property
    def direct(self) -> bool:
        """Whether reads and writes bypass the page cache."""
        return self._file.direct

    def refresh(self) -> None:
        """Read the table again, which another file object or process may have replaced.

        Raises:
            FileNotFoundError: the table is missing.
            CorruptFileError: it was modified, or is that of another store.
        """
        self._slots, self._checksums = read_table(self._folder, self._layout)

    def read(self, partition: int, memory: Tensor) -> None:
        """Read a record.

        Args:
            partition: number of the partition.
            memory: uint8 [slot_bytes], aligned to a block.

        Raises:
            CorruptFileError: the record is damaged; the message names the partition.
            OSError: the device reports an error.
        """
        layout = self._layout
        offset = self._slots[partition] * layout.slot_bytes
        self._file.read(as_bytes(memory), offset)
        if self._verify and checksum(memory[: layout.record_bytes]) != self._checksums[partition]:
            raise CorruptFileError(
                f"partition {partition} of {self._path} is damaged: bytes {offset} to {offset + layout.record_bytes} "
                "do not match their checksum; restore the file, or build the store again"
            )

    def write(self, partition: int, memory: Tensor) -> None:
        """Replace a record: completely or, after an error, not at all.

        Args:
            partition: number of the partition.
            memory: uint8 [slot_bytes], aligned to a block; padding included.

        Raises:
            OSError: the device is full or reports an error; the message names the partition.
        """
        with self._changed:
            self._changed.wait_for(self._free_slots)
            slot = min(self._free_slots())
            self._writing.add(slot)
        try:
            self._write_slot(slot, memory)
            self._commit(partition, slot, checksum(memory[: self._layout.record_bytes]))
        except OSError as error:
            text = (
                f"{error.strerror} when writing partition {partition}, which remains as it was before; free some space"
            )
            raise OSError(error.errno, text, str(self._path)) from error
        finally:
            with self._changed:
                self._writing.discard(slot)
                self._changed.notify()

    def _free_slots(self) -> set[int]:
        return set(range(self._layout.num_slots)) - set(self._slots) - self._writing

    def _commit(self, partition: int, slot: int, record_checksum: int) -> None:
        with self._changed:
            slots, sums = self._slots.copy(), self._checksums.copy()
            slots[partition], sums[partition] = slot, record_checksum
            try:
                write_table(self._folder, slots, sums)
            except BaseException:
                self.refresh()  # an interrupt may have come after the replacement: its slot is not free then
                raise
            self._slots, self._checksums = slots, sums

    def _write_slot(self, slot: int, memory: Tensor) -> None:
        flags = os.O_WRONLY | (os.O_DIRECT if self.direct else 0)
        descriptor = os.open(self._path, flags)
        try:
            buffer, offset = as_bytes(memory), slot * self._layout.slot_bytes
            while buffer:
                done = os.pwritev(descriptor, [buffer], offset)
                done -= done % BLOCK if done < len(buffer) else 0
                if not done:
                    raise OSError(errno.EIO, "Short write")
                buffer, offset = buffer[done:], offset + done
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def damaged(self) -> list[int]:
        """Partitions whose records do not match their checksums; reads all of them."""
        memory, found, verify = block_aligned(self._layout.slot_bytes), [], self._verify
        self._verify = True
        try:
            for partition in range(self._layout.num_partitions):
                try:
                    self.read(partition, memory)
                except CorruptFileError:
                    found.append(partition)
        finally:
            self._verify = verify
        return found


def checksum(values: Tensor | np.ndarray) -> int:
    """XXH3 of bytes as a signed number of 64 bits, without the interpreter lock.

    Reading threads share the cores with sampling: a cyclic redundancy check takes four times as long.
    """
    found = xxhash.xxh3_64()
    found.update(as_bytes(values) if isinstance(values, Tensor) else values.data)
    return int.from_bytes(found.digest(), "big", signed=True)


def check_size(path: Path, nbytes: int) -> None:
    """Check the size of a file of a store.

    Raises:
        FileNotFoundError: it is missing.
        CorruptFileError: it has another size.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; restore it, or build the store again")
    if (size := path.stat().st_size) != nbytes:
        raise CorruptFileError(
            f"{path} has {size} bytes, but {nbytes} belong to the store's header; restore it, or build the store again"
        )


def read_table(folder: Path, layout: StoreLayout) -> tuple[list[int], list[int]]:
    """The slot and the checksum of every partition.

    Raises:
        FileNotFoundError: the table is missing.
        CorruptFileError: it was modified, or is that of another store.
    """
    file = folder / TABLE
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing; restore it, or build the store again")
    table = read_json(file)
    slots, sums = table.get("slots"), table.get("checksums")
    if table.get("digest") != files.digest([slots, sums]) or not isinstance(slots, list) or not isinstance(sums, list):
        raise CorruptFileError(f"{file} was modified: its digest does not match; restore it, or build the store again")
    if len(slots) != layout.num_partitions or len(set(slots)) != len(slots) or max(slots) >= layout.num_slots:
        raise CorruptFileError(f"{file} is the table of another store; restore it, or build the store again")
    return slots, sums


def write_table(folder: Path, slots: list[int], checksums: list[int]) -> None:
    """Replace the table atomically, also across a power cut."""
    table = {"slots": slots, "checksums": checksums, "digest": files.digest([slots, checksums])}
    files.write_file(folder / TABLE, json.dumps(table))
