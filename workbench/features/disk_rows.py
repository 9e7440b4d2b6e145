"""`DiskRows`: random rows of a file by many direct reads at once, for features far larger than memory."""

import math
import os
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.array_store import array_path, saved_digest
from workbench.core.errors import (
    INT64_MAX,
    CorruptFileError,
    check_at_least,
    check_bytes,
    check_id_vector,
    check_ids,
    check_vector,
)
from workbench.core.machine import Traffic
from workbench.core.units import format_bytes
from workbench.features.direct_file import DirectFile, run_waiting
from workbench.features.memory_rows import ROWS_KIND, open_rows
from workbench.features.protocols import check_rows
from workbench.kernels.buffers import byte_view, uninitialised
from workbench.kernels.jit import compiled


class ReadPlan(NamedTuple):
    """Reads in ascending order, each of whole blocks.

    Args:
        order: position of every record in the result, by its place in the file; int64 [records].
        starts: first byte of every record in the file, ascending; int64 [records].
        offsets: first byte of every read; int64 [reads].
        sizes: bytes of every read; int64 [reads].
        first_record: first record that each read covers, and the number of records; int64 [reads + 1].
        tasks: first read of each task, and the number of reads; int64 [tasks + 1].
    """

    order: np.ndarray
    starts: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray
    first_record: np.ndarray
    tasks: np.ndarray


class DiskRows:
    """Rows of a file, read when they are asked for, many at a time and past the system's page cache.

    `read` sorts the ids and reads rows that are at most `gap_bytes` apart together, in whole blocks of the device and
    at most 256 KiB at once, many reads at the same time. Nothing is cached: memory does not grow with the file, only by
    about 0.5 MiB per read at the same time. Rows that fit into memory are better read by `MappedRows` or `MemoryRows`.

    Args:
        folder: folder written by `MappedRows.create`; both stores open the same folders.
        direct: read past the page cache (O_DIRECT). True requires it; False reads through the page cache, without
            read-ahead; "auto" means True where the file system supports it. The property `direct` tells which it is.
        threads: reads that the disk works on at the same time, at least 1. Up to four threads ask the kernel for them
            and copy rows; where it has no queue (through the page cache, not on Linux), each read has a thread. The
            calling one included, they begin and end with each call of `read`.
        gap_bytes: bytes between two rows up to which one read covers both: what the disk transfers in the time of
            another read (`wb.outofcore.DiskModel.read_bytes`). 0: rows whose blocks touch.
        traffic: counts the rows that are read, as "disk", and their own bytes; `read_bytes` are those that it took.

    Raises:
        FileNotFoundError: if the folder or its file is missing.
        CorruptFileError: if the file does not match its header.
        ValueError: `threads` below 1, `gap_bytes` below 0, another value of `direct`, or True where the file system
            does not support it.

    Warns:
        RuntimeWarning: `direct` is "auto", and the file system does not support it.
    """

    device = torch.device("cpu")

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        direct: bool | Literal["auto"] = "auto",
        threads: int = 16,
        gap_bytes: int | str = 8 << 10,
        traffic: Traffic | None = None,
    ) -> None:
        check_at_least("threads", threads, 1)
        self._gap = min(check_bytes("gap_bytes", gap_bytes, 0), INT64_MAX)
        self._digest = saved_digest(folder, kind=ROWS_KIND)
        rows = open_rows(folder)
        self._folder, self._option, self._threads, self._traffic = Path(folder).absolute(), direct, threads, traffic
        self._length, self._no_rows = len(rows), rows.new_empty(0, *rows.shape[1:])
        self._row_bytes = self._no_rows.new_empty(1, *rows.shape[1:]).nbytes
        self._file = DirectFile(array_path(folder, "rows"), direct=direct)
        if self._file.size != rows.nbytes or saved_digest(folder, kind=ROWS_KIND) != self._digest:
            raise CorruptFileError(f"{folder} was replaced while it was being opened; open it again")
        self._count(0, 0, 0)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(self._no_rows.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        return self._no_rows.dtype

    def __len__(self) -> int:
        return self._length

    @property
    def direct(self) -> bool:
        """Whether reads bypass the system's page cache."""
        return self._file.direct

    @property
    def block_bytes(self) -> int:
        """Reads begin and end at multiples of it: the smallest block that the disk reads directly, or 1."""
        return self._file.block

    @property
    def num_reads(self) -> int:
        """Number of reads of the file."""
        return self._file.counts.reads

    @property
    def read_bytes(self) -> int:
        """Bytes that were read from the file, with blocks' other rows and gaps; the page cache may have served some."""
        return self._file.counts.nbytes

    @property
    def amplification(self) -> float:
        """Bytes that were read ÷ bytes of the rows that were asked for; NaN before the first row."""
        counts = self._file.counts
        return counts.nbytes / counts.wanted_bytes if counts.wanted_bytes else math.nan

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read rows from disk. Arguments as for `FeatureStore.read`.

        If reading fails or is interrupted, no thread is left behind, and `out` contains some of the rows.

        Raises:
            IndexError: an id out of range.
            TypeError: ids that are no integers, or `out` of another dtype.
            ValueError: `out` of another shape or on another device.
            OSError: the disk reports an error; the message names file and offset.
            CorruptFileError: the file has become shorter since it was opened.
        """
        check_id_vector("ids", ids)
        if out is not None:
            check_rows("out", out, self, len(ids), on_device=True)
        places = check_ids("ids", ids, len(self)).cpu()
        rows = out
        if rows is None or not rows.is_contiguous():
            rows = uninitialised(self._no_rows, len(ids), *self.row_shape)
        self._fill(places, rows.detach())
        return rows if out is None or rows is out else out.copy_(rows)

    def read_to(self, ids: Tensor, rows: Tensor, places: Tensor) -> None:
        """Read rows to places of a larger tensor, without a copy of them in between.

        Args:
            ids: int64 or int32 [n], not necessarily unique.
            rows: [any, *row_shape], contiguous, in the dtype of the store, on the CPU.
            places: int64 [n], each once: where in `rows` the row of each id is written.

        Raises:
            IndexError: an id or a place out of range.
            TypeError: ids or places of another dtype, or rows of another one.
            ValueError: rows of another shape or layout, or another number of places.
            OSError, CorruptFileError: as for `read`.
        """
        ids = check_ids("ids", ids, len(self)).cpu()
        check_rows("rows", rows, self, len(rows), on_device=True)
        if not rows.is_contiguous():
            raise ValueError("rows is not contiguous; pass rows.contiguous()")
        check_vector("places", places, len(ids), (torch.int64,))
        self._fill(ids, rows.detach(), check_ids("places", places, len(rows)))

    def cost_of(self, ids: Tensor) -> tuple[int, int]:
        """Count what a call of `read` takes from the disk, without reading: its bytes and its number of reads.

        Args:
            ids: int64 or int32 [n], not necessarily unique.
        """
        size = {"block": self._file.block, "max_gap": self._gap, "file_bytes": self._file.size}
        return read_cost(check_ids("ids", ids, len(self)).cpu(), self._row_bytes, **size)

    def _fill(self, ids: Tensor, out: Tensor, places: Tensor | None = None) -> None:
        """Read rows to a contiguous tensor, in the order of the ids or to the places that are given."""
        if not (len(ids) and self._row_bytes):
            self._count(len(ids), 0, 0)
            return
        threads, depth = self._file.threads_for(self._threads)
        block = self._file.block
        plan = plan_reads(ids, self._row_bytes, block=block, threads=threads, depth=depth, max_gap=self._gap)
        if places is not None:
            plan = plan._replace(order=places.numpy()[plan.order])
        rows = byte_view(out).view(len(out), self._row_bytes).numpy()
        counts: list[int] = []
        tasks = [partial(self._run, plan, slice(*ends), rows, depth, counts) for ends in pairwise(plan.tasks.tolist())]
        run_waiting(tasks, threads)
        self._count(len(ids), sum(counts), len(counts))

    def _run(self, plan: ReadPlan, reads: slice, out: np.ndarray, depth: int, counts: list[int]) -> None:
        """Do consecutive reads of a plan, and copy their rows to the result."""
        offsets, sizes = plan.offsets[reads], plan.sizes[reads]
        places = np.cumsum(sizes) - sizes
        with self._file.buffer(buffer_bytes(self._row_bytes, self._file.block, depth)) as buffer:
            counts += self._file.read_all(buffer, places, offsets, sizes, depth)
            scatter_records(plan, reads, places, buffer, out)

    def _count(self, rows: int, read_bytes: int, reads: int) -> None:
        self._file.count(read_bytes, rows * self._row_bytes, reads)
        if self._traffic is not None:
            self._traffic.add("disk", "rows", rows, rows * self._row_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        """Open the folder again where it is unpickled, such as in a spawned process; counts begin at 0.

        A folder whose rows were replaced since is refused there.
        """
        options = {"direct": self._option, "threads": self._threads, "gap_bytes": self._gap, "traffic": self._traffic}
        return partial(_open_again, **options), (self._folder, self._digest)

    def __repr__(self) -> str:
        kind = f"{len(self):,} × {list(self.row_shape)} {str(self.dtype).removeprefix('torch.')}"
        how = "direct" if self.direct else "buffered"
        return f"DiskRows({kind}, {format_bytes(self._file.size)}, {how}, {self._threads} threads)"


def _open_again(folder: Path, digest: str, **options: Any) -> DiskRows:
    rows = DiskRows(folder, **options)
    if rows._digest != digest:
        raise ValueError(f"{folder} was written again since these DiskRows were opened; open them again")
    return rows


MAX_GAP = 8 << 10
"""Bytes between two records up to which one read covers both, unless the caller knows the disk: an SSD transfers them
in the time of another request."""

MAX_READ = 256 << 10
"""Bytes of a read, unless one record is longer: beyond it the number of requests no longer limits the bandwidth."""

_TASKS_PER_THREAD = 4

_FEWEST_BYTES = 1 << 20
"""Of a task that asks for many reads at once: fewer are read sooner than another thread starts."""


def buffer_bytes(record_bytes: int, block: int, depth: int = 1) -> int:
    """Bytes that the reads of a task need together, at most."""
    return _most_bytes(depth) + max(MAX_READ, record_bytes + 2 * block)


def _most_bytes(depth: int) -> int:
    """Bytes of a task before its last read: as many reads of the longest as it asks for at once, twice over."""
    return MAX_READ * (2 * depth if depth > 1 else 1)


def plan_reads(
    ids: Tensor, record_bytes: int, *, block: int, threads: int, depth: int = 1, max_gap: int = MAX_GAP
) -> ReadPlan:
    """Plan how to read records by id.

    Args:
        ids: int64 [n], not negative, in any order, not necessarily unique.
        record_bytes: size of a record; record i begins at byte i · record_bytes.
        block: reads begin and end at multiples of it.
        threads: number of threads that share the tasks.
        depth: reads that each of them asks for at once.
        max_gap: bytes between two records up to which one read covers both.
    """
    wanted = ids.numpy()
    order = np.argsort(wanted)  # not torch's, whose threads would be missing in a forked child
    starts, offsets, sizes, first = _coalesced(wanted[order], record_bytes, block, max_gap)
    return ReadPlan(order, starts, offsets, sizes, first, _tasks(sizes, threads, depth))


def _coalesced(ids: np.ndarray, record_bytes: int, block: int, max_gap: int) -> tuple[np.ndarray, ...]:
    """Starts of records, ascending; offsets and sizes of the reads that cover them; the first record of each."""
    starts = ids * np.int64(record_bytes)
    offsets, sizes, first = (np.empty(len(starts) + 1, np.int64) for _ in range(3))
    count = _coalesce(starts, record_bytes, block, max_gap, MAX_READ, offsets, sizes, first)
    return starts, offsets[:count], sizes[:count], first[: count + 1]


def read_cost(ids: Tensor, record_bytes: int, *, block: int, max_gap: int, file_bytes: int) -> tuple[int, int]:
    """Count the bytes and the reads of a plan.

    Args:
        ids: int64 [n], in any order, not necessarily unique.
        record_bytes: size of a record.
        block: reads begin and end at multiples of it, or at the end of the file.
        max_gap: bytes between two records up to which one read covers both.
        file_bytes: size of the file.
    """
    if not (len(ids) and record_bytes):
        return 0, 0
    wanted = ids.numpy()
    ascending = wanted if (wanted[1:] >= wanted[:-1]).all() else np.sort(wanted)
    _, offsets, sizes, _ = _coalesced(ascending, record_bytes, block, max_gap)
    return int((np.minimum(offsets + sizes, file_bytes) - offsets).sum()), len(offsets)


def _tasks(sizes: np.ndarray, threads: int, depth: int) -> np.ndarray:
    """Group consecutive reads into tasks of about the same number of bytes."""
    before = np.cumsum(sizes) - sizes
    fewest = _FEWEST_BYTES if depth > 1 else 1
    per_task = min(_most_bytes(depth), max(fewest, int(sizes.sum()) // (_TASKS_PER_THREAD * threads)))
    return np.append(np.flatnonzero(np.diff(before // per_task, prepend=-1)), len(sizes))


@compiled
def _coalesce(starts, record_bytes, block, max_gap, max_read, offsets, sizes, first):
    count = 0
    for i in range(len(starts)):
        low = starts[i] // block * block
        high = (starts[i] + record_bytes + block - 1) // block * block
        if count > 0:
            offset = offsets[count - 1]
            if low - (offset + sizes[count - 1]) <= max_gap and high - offset <= max(max_read, sizes[count - 1]):
                sizes[count - 1] = high - offset
                continue
        offsets[count], sizes[count], first[count] = low, high - low, i
        count += 1
    first[count] = len(starts)
    return count


def scatter_records(plan: ReadPlan, reads: slice, places: np.ndarray, buffer: np.ndarray, out: np.ndarray) -> None:
    """Copy the records that some reads cover from a buffer to their rows of the result.

    Args:
        reads: consecutive reads.
        places: where each of these reads begins in the buffer; int64 [number of reads].
        buffer: the bytes that were read, uint8.
        out: rows of the result, uint8 [n, record_bytes].
    """
    _scatter(buffer, places - plan.offsets[reads], plan.first_record[reads.start :], plan.starts, plan.order, out)


@compiled
def _scatter(buffer, shift, first, starts, order, out):
    for read in range(len(shift)):
        for i in range(first[read], first[read + 1]):
            source, to = buffer[starts[i] + shift[read] :], out[order[i]]
            for byte in range(len(to)):
                to[byte] = source[byte]
