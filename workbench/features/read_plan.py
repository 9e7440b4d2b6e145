"""Plans reads of records scattered over a file: nearby records share a read, and reads are grouped into tasks."""

from typing import NamedTuple

import numpy as np
from torch import Tensor

from workbench.kernels.jit import compiled

MAX_GAP = 8 << 10
"""Bytes between two records up to which one read covers both: an SSD transfers them in the time of another request."""

MAX_READ = 256 << 10
"""Bytes of a read, unless one record is longer: beyond it the number of requests no longer limits the bandwidth."""

_TASKS_PER_THREAD = 4


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


def buffer_bytes(record_bytes: int, block: int) -> int:
    """Bytes that the reads of a task need together, at most."""
    return MAX_READ + max(MAX_READ, record_bytes + 2 * block)


def plan_reads(ids: Tensor, record_bytes: int, *, block: int, threads: int) -> ReadPlan:
    """Plan how to read records by id.

    Args:
        ids: int64 [n], not negative, in any order, not necessarily unique.
        record_bytes: size of a record; record i begins at byte i · record_bytes.
        block: reads begin and end at multiples of it.
        threads: number of threads that share the tasks.
    """
    wanted = ids.numpy()
    order = np.argsort(wanted)  # not torch's, whose threads would be missing in a forked child
    starts = wanted[order] * np.int64(record_bytes)
    offsets, sizes, first = (np.empty(len(starts) + 1, np.int64) for _ in range(3))
    count = _coalesce(starts, record_bytes, block, MAX_GAP, MAX_READ, offsets, sizes, first)
    sizes = sizes[:count]
    return ReadPlan(order, starts, offsets[:count], sizes, first[: count + 1], _tasks(sizes, threads))


def _tasks(sizes: np.ndarray, threads: int) -> np.ndarray:
    """Group consecutive reads into tasks of about the same number of bytes, at most `MAX_READ` and one more read."""
    before = np.cumsum(sizes) - sizes
    per_task = min(MAX_READ, max(1, int(sizes.sum()) // (_TASKS_PER_THREAD * threads)))
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
        plan: the plan.
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
