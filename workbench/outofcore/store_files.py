"""`PartitionFile`: the rows of a partition store, a record per partition, read and written whole.

A write goes to a free slot of the file and is then committed by an atomic replacement of the table that says which slot
each partition is in. A process that is killed at any moment leaves every partition as it was last committed.
"""

import errno
import json
import os
import threading
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
import xxhash
from torch import Tensor

from workbench import files
from workbench.core.errors import CorruptFileError
from workbench.features.direct_file import DirectFile
from workbench.outofcore.store_layout import (
    BLOCK,
    EDGES,
    ROWS,
    TABLE,
    StoreFolder,
    StoreLayout,
    read_json,
    whole_blocks,
)


def block_aligned(nbytes: int) -> Tensor:
    """Allocate uint8 [nbytes] from a multiple of a block on, as direct reads and writes require."""
    memory = torch.empty(nbytes + BLOCK, dtype=torch.uint8)
    start = -memory.data_ptr() % BLOCK
    return memory[start : start + nbytes]


def as_bytes(memory: Tensor) -> memoryview:
    """The bytes of a contiguous uint8 tensor."""
    return memoryview(memory.numpy())  # type: ignore[arg-type]


@dataclass(frozen=True)
class PartitionTable:
    """The table of a store.

    Args:
        slots: slot of every partition.
        checksums: XXH3 of every partition's record.
        commits: number of writes so far: two tables of one store with the same number are the same.
    """

    slots: tuple[int, ...]
    checksums: tuple[int, ...]
    commits: int = 0

    def with_record(self, partition: int, slot: int, checksum: int) -> "PartitionTable":
        """The table in which a partition has moved to another slot."""
        slots, sums = list(self.slots), list(self.checksums)
        slots[partition], sums[partition] = slot, checksum
        return replace(self, slots=tuple(slots), checksums=tuple(sums), commits=self.commits + 1)

    def as_json(self, layout: StoreLayout) -> str:
        """The content of the table's file."""
        values = [layout.build_id, self.commits, list(self.slots), list(self.checksums)]
        fields = dict(zip(("build_id", "commits", "slots", "checksums"), values, strict=True))
        return json.dumps({**fields, "digest": files.digest(values)})


class PartitionFile:
    """Reads and writes records by partition, from any number of threads.

    Other processes may write meanwhile: whatever record is read is one that was committed.

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
        self, folder: StoreFolder, layout: StoreLayout, *, direct: bool | Literal["auto"] = "auto", verify: bool = True
    ) -> None:
        self._folder, self._layout, self._verify = folder, layout, verify
        self._path = folder.path / ROWS
        folder.check_size(ROWS, layout.num_slots * layout.slot_bytes, layout.remedy)
        self._file = DirectFile(self._path, direct=direct, folder=folder.descriptor)
        self.refresh()

    @property
    def direct(self) -> bool:
        """Whether reads and writes bypass the page cache."""
        return self._file.direct

    def refresh(self) -> None:
        """Begin anew with the table that is on disk, which another file object or process may have replaced.

        Raises:
            FileNotFoundError: the table is missing.
            ValueError: the store was rebuilt since its handle was opened.
            CorruptFileError: it was modified, or is that of another store.
        """
        self._changed, self._writing = threading.Condition(), set[int]()  # a fork may have left it locked
        self._written = self._seen = self._load()

    def _load(self) -> tuple[tuple[int, ...], PartitionTable]:
        """The table on disk, with the stamp of its file, which is older if the file is replaced meanwhile."""
        return self._folder.stamp_of(TABLE), read_table(self._folder, self._layout)

    def _latest(self) -> PartitionTable:
        """The table on disk; it is read only if it was replaced."""
        seen = self._seen
        if self._folder.stamp_of(TABLE) != seen[0]:
            self._seen = seen = self._load()
        return seen[1]

    def read(self, partition: int, memory: Tensor) -> None:
        """Read a record.

        Args:
            memory: uint8 [slot_bytes], aligned to a block.

        Raises:
            CorruptFileError: the record is damaged; the message names the partition.
            ValueError: the store was rebuilt since its handle was opened.
            OSError: the device reports an error.
        """
        layout, again = self._layout, False
        while True:
            table = self._latest()
            offset = table.slots[partition] * layout.slot_bytes
            self._file.read(as_bytes(memory), offset)
            if not self._verify and self._latest() == table:
                return
            if checksum(memory[: layout.record_bytes]) == table.checksums[partition]:
                return
            if self._latest() != table:
                continue  # a slot is written to only after a table that does not name it
            if again:
                break
            again = True
            self._file.forget_cached()
        raise CorruptFileError(
            f"partition {partition} of {self._path} is damaged: bytes {offset} to {offset + layout.record_bytes} "
            f"do not match their checksum; {layout.remedy}"
        )

    def write(self, partition: int, memory: Tensor) -> None:
        """Replace a record: completely or, after an error, not at all.

        Args:
            memory: uint8 [slot_bytes], aligned to a block; padding included.

        Raises:
            RuntimeError: another process has written to the store, or replaced it.
            OSError: the device is full or reports an error, or the store was deleted; the message names the partition.
        """
        with self._changed:
            self._changed.wait_for(self._free_slots)
            slot = min(self._free_slots())
            self._writing.add(slot)
        try:
            self._check_unchanged(partition)
            self._write_slot(slot, memory)
            self._commit(partition, slot, checksum(memory[: self._layout.record_bytes]))
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"partition {partition} of {self._path} is not written: the store was deleted while it was open"
            ) from error
        except OSError as error:
            remedy = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check the disk"
            text = f"{error.strerror} when writing partition {partition}, which remains as it was before; {remedy}"
            raise OSError(error.errno, text, str(self._path)) from error
        finally:
            with self._changed:
                self._writing.discard(slot)
                self._changed.notify()

    def _free_slots(self) -> set[int]:
        return set(range(self._layout.num_slots)) - set(self._written[1].slots) - self._writing

    def _check_unchanged(self, partition: int) -> None:
        """Check that the table is the one that this object has written last: its free slots are free on disk."""
        with self._changed:
            stamp, table = self._written
            if self._folder.stamp_of(TABLE) != stamp and read_table(self._folder, self._layout) != table:
                raise RuntimeError(
                    f"partition {partition} of {self._path} is not written: another process has written to the store "
                    "although this one has locked it, as on a file system without locks; let one process write"
                )

    def _commit(self, partition: int, slot: int, record_checksum: int) -> None:
        with self._changed:
            self._check_unchanged(partition)
            try:
                write_table(self._folder, self._written[1].with_record(partition, slot, record_checksum), self._layout)
            finally:
                self._written = self._load()  # also after an interrupt, which may have come after the replacement

    def _write_slot(self, slot: int, memory: Tensor) -> None:
        descriptor = self._folder.open_to_write(ROWS, direct=self.direct)
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


def write_table(folder: StoreFolder, table: PartitionTable, layout: StoreLayout) -> None:
    """Replace the table atomically, also across a power cut."""
    folder.write(TABLE, table.as_json(layout))


def read_table(folder: StoreFolder, layout: StoreLayout) -> PartitionTable:
    """Read the table of a store.

    Raises:
        FileNotFoundError: the table is missing.
        ValueError: the store was rebuilt since its handle was opened.
        CorruptFileError: the table was modified, or is that of another store.
    """
    file = folder.path / TABLE
    try:
        table = read_json(file, folder=folder.descriptor)
    except FileNotFoundError:
        raise folder.gone(TABLE) from None
    slots, sums, commits = table.get("slots"), table.get("checksums"), table.get("commits")
    values = [slots, sums] if commits is None else [table.get("build_id"), commits, slots, sums]  # none in version 2
    if table.get("digest") != files.digest(values) or not isinstance(slots, list) or not isinstance(sums, list):
        raise CorruptFileError(f"{file} was modified: its digest does not match; {layout.remedy}")
    sizes_match = len(slots) == len(set(slots)) == len(sums) == layout.num_partitions and max(slots) < layout.num_slots
    if table.get("build_id") != layout.build_id or not sizes_match:
        folder.check_build()
        raise CorruptFileError(f"{file} is the table of another store; {layout.remedy}")
    return PartitionTable(tuple(slots), tuple(sums), commits or 0)


@dataclass(frozen=True, eq=False)
class Bucket:
    """The edges from one partition to another, in ascending order of destination, then of the source graph's order.

    Args:
        edge_ids: int64 [n].
        src: int32 [n], offset of each source in its partition.
        dst: int32 [n], offset of each destination in its partition.
        edge_type: integer [n], or None.
        edge_weight: floating point [n], or None.
    """

    edge_ids: Tensor
    src: Tensor
    dst: Tensor
    edge_type: Tensor | None = None
    edge_weight: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(
            a.nbytes for a in (self.edge_ids, self.src, self.dst, self.edge_type, self.edge_weight) if a is not None
        )


def bucket_offsets(bucket_edges: Tensor, edge_bytes: int) -> np.ndarray:
    """int64 [p² + 1], the byte at which every bucket begins: the next multiple of 8 after the one before."""
    sizes = -(-bucket_edges.flatten().numpy() * edge_bytes // 8) * 8
    return np.concatenate([np.zeros(1, np.int64), sizes.cumsum()])


class EdgeBuckets:
    """Reads buckets; those that follow each other in the file are read at once.

    Args:
        folder: of the store.
        layout: its sizes.
        bucket_edges: int64 [p, p], number of edges of every bucket.
        checksums: int64 [p²], XXH3 of every bucket.
        direct: read past the page cache.
        verify: compare the checksum of every bucket that is read.
    """

    def __init__(
        self,
        folder: StoreFolder,
        layout: StoreLayout,
        bucket_edges: Tensor,
        checksums: Tensor,
        *,
        direct: bool | Literal["auto"] = "auto",
        verify: bool = True,
    ) -> None:
        self._layout, self._verify, self._path = layout, verify, folder.path / EDGES
        self._counts, self._checksums = bucket_edges.flatten().tolist(), checksums
        self._offsets = bucket_offsets(bucket_edges, layout.edge_bytes)
        folder.check_size(EDGES, max(BLOCK, whole_blocks(int(self._offsets[-1]))), layout.remedy)
        self._file = DirectFile(self._path, direct=direct, folder=folder.descriptor)

    def runs(self, loaded: Tensor, held: Tensor) -> list[tuple[int, int]]:
        """Buckets that some partitions add to a buffer, as runs [first, last) of consecutive numbers i·p + j.

        Args:
            loaded: int64, partitions that are new in the buffer.
            held: int64, all partitions in the buffer, `loaded` included.
        """
        return runs_of(loaded, held, self._layout.num_partitions)

    def run_bytes(self, run: tuple[int, int]) -> int:
        """Bytes that reading a run moves: the blocks in which it is."""
        low, high = self._blocks(run)
        return high - low

    def _blocks(self, run: tuple[int, int]) -> tuple[int, int]:
        first, last = int(self._offsets[run[0]]), int(self._offsets[run[1]])
        return (first // BLOCK * BLOCK, whole_blocks(last)) if last > first else (first, first)

    def read(self, run: tuple[int, int]) -> dict[tuple[int, int], Bucket]:
        """Read a run of buckets.

        Args:
            run: numbers [first, last) of buckets.

        Returns:
            Buckets by (partition of the sources, partition of the destinations), each with memory of its own.

        Raises:
            CorruptFileError: a bucket is damaged; the message names it.
            OSError: the device reports an error.
        """
        low, high = self._blocks(run)
        memory = block_aligned(high - low)
        if high > low:
            self._file.read(as_bytes(memory), low)
        parts = {number: self._cut(memory, number, low) for number in range(*run)}
        if len(parts) > 1:  # one that leaves the buffer would keep the memory of all
            parts = {number: part.clone() for number, part in parts.items()}
        return {
            divmod(number, self._layout.num_partitions): self._bucket(part, number) for number, part in parts.items()
        }

    def _cut(self, memory: Tensor, number: int, low: int) -> Tensor:
        begin = int(self._offsets[number]) - low
        return memory[begin : begin + self._counts[number] * self._layout.edge_bytes]

    def _bucket(self, own: Tensor, number: int) -> Bucket:
        count = self._counts[number]
        if self._verify and checksum(own) != int(self._checksums[number]):
            i, j = divmod(number, self._layout.num_partitions)
            raise CorruptFileError(
                f"the bucket of edges from partition {i} to partition {j} of {self._path} is damaged: it does not "
                f"match its checksum; {self._layout.remedy}"
            )
        arrays, at = {}, 0
        for name, dtype in self._layout.edge_arrays:
            arrays[name] = own[at : at + count * dtype.itemsize].view(dtype)
            at += count * dtype.itemsize
        return Bucket(**arrays)


def runs_of(loaded: Tensor, held: Tensor, num_partitions: int) -> list[tuple[int, int]]:
    """Runs of consecutive buckets between `loaded` and `held` partitions, in either direction."""
    pairs = [a[:, None] * num_partitions + b for a, b in ((loaded, held), (held, loaded))]
    numbers = torch.unique(torch.cat([pair.flatten() for pair in pairs])).numpy()
    if not len(numbers):
        return []
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(numbers, cuts)]
