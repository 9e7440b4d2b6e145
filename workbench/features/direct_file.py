"""`DirectFile`: a file that is read past the page cache, at many places at the same time.

A disk is fast only if it works on many reads at once. The kernel keeps a queue of them (Linux's asynchronous I/O, for
files opened with O_DIRECT), so that one thread, which neither waits for a read nor holds the interpreter's lock, asks
for as many as the disk takes. Where there is no such queue, each thread waits for a read of its own.
"""

import errno
import mmap
import os
import platform
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numba.core import types

from workbench.core.errors import CorruptFileError, complete_despite_interrupt, deferred_interrupt
from workbench.kernels.jit import compiled
from workbench.kernels.threads import get_num_threads

_BLOCKS = (512, 4096)
"""Logical block sizes of devices, smallest first."""

_open_files: dict[int, weakref.ref] = {}
"""The owner of every open descriptor."""

_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP)


class DirectFile:
    """A file that is read at random places by any number of threads.

    Args:
        path: the file.
        direct: read past the page cache (O_DIRECT), in whole blocks of the device; "auto": where the file system can.
        folder: descriptor of the folder whose file it is; None: the one that its path names.

    Raises:
        OSError: if the file can't be opened or read.
        ValueError: `direct` is none of these, or True and the file system does not support O_DIRECT.

    Warns:
        RuntimeWarning: `direct` is "auto", and the file system does not support it.
    """

    def __init__(self, path: Path, *, direct: bool | Literal["auto"], folder: int | None = None) -> None:
        self.path = path
        with deferred_interrupt():  # the descriptor always has an owner
            self._descriptor, self.block = _open(path, direct, folder)
            close_with(self, self._descriptor)
        self.size = os.fstat(self._descriptor).st_size
        with lent_queue() as queue:  # through the page cache, asking for a read would wait for it
            self._has_queue = self.direct and bool(queue)
        self._process = _OfProcess(os.getpid())

    @property
    def direct(self) -> bool:
        """Whether reads bypass the page cache."""
        return self.block > 1

    @property
    def counts(self) -> "ReadCounts":
        """What was read so far."""
        return self._process.counts

    def count(self, read_bytes: int, wanted_bytes: int, reads: int) -> None:
        """Add to `counts`."""
        process = self._of_this_process()
        with process.lock:
            before = process.counts
            process.counts = ReadCounts(
                before.nbytes + read_bytes, before.wanted_bytes + wanted_bytes, before.reads + reads
            )

    @contextmanager
    def buffer(self, nbytes: int) -> Iterator[np.ndarray]:
        """Lend a page-aligned buffer, uint8 [at least nbytes], to one thread at a time; kept for the next reads."""
        buffers = self._of_this_process().buffers
        try:
            buffer = buffers.pop()
        except IndexError:
            buffer = np.empty(0, np.uint8)
        if len(buffer) < nbytes:
            buffer = np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
        yield buffer
        buffers.append(buffer)  # not after an error or an interrupt

    def _of_this_process(self) -> "_OfProcess":
        """Buffers and lock of this process: a forked child shares the memory of its parent's buffers."""
        if self._process.pid != os.getpid():
            self._process = _OfProcess(os.getpid(), self._process.counts)
        return self._process

    def read(self, buffer: memoryview, offset: int) -> int:
        """Fill a buffer with the bytes from `offset` on, as far as the file goes.

        Args:
            buffer: page-aligned or at a multiple of `block` behind, and of a multiple of `block` bytes.
            offset: a multiple of `block`.

        Returns:
            Number of bytes that were read.

        Raises:
            OSError: the device reports an error; the message names file and offset.
            CorruptFileError: the file has become shorter since it was opened.
        """
        wanted, done, total = min(len(buffer), self.size - offset), 0, 0
        while done < wanted:
            count = self._read_once(buffer[done:], offset + done)
            total += count
            step = count if done + count >= wanted else count // self.block * self.block
            if not step:
                now = os.fstat(self._descriptor).st_size
                raise CorruptFileError(
                    f"{self.path} ends at byte {now}, but had {self.size} bytes when it was opened; write it again, "
                    "and don't change files that are open"
                )
            done += step
        return total

    def threads_for(self, reads: int) -> tuple[int, int]:
        """How to let the disk work on some reads at the same time: threads, and the reads that each asks for at once.

        Args:
            reads: their number.
        """
        if not self._has_queue:
            return reads, 1
        threads = max(1, min(reads // _FEWEST_READS, get_num_threads(), _COPYING_THREADS))
        return threads, min(_QUEUE_READS, -(-reads // threads))

    def read_all(
        self, buffer: np.ndarray, places: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, depth: int = 1
    ) -> list[int]:
        """Do some reads without the interpreter's lock.

        Args:
            buffer: uint8, as `buffer` lends them.
            places: int64 [reads], where in the buffer each read begins.
            offsets: int64 [reads], where in the file.
            sizes: int64 [reads], bytes.
            depth: reads at the same time.

        Returns:
            Number of bytes of each read.

        Raises:
            OSError, CorruptFileError: as for `read`.
        """
        counts, done = np.minimum(sizes, self.size - offsets), np.full(len(sizes), -1)
        if self._has_queue and depth > 1:
            self._read_queued(buffer, places, offsets, sizes, depth, done)
        else:
            _pread_all(self._descriptor, buffer, places, offsets, sizes, done)
        for k in np.flatnonzero(done != counts).tolist():  # complete it, or say what is wrong
            place, offset, size = int(places[k]), int(offsets[k]), int(sizes[k])
            counts[k] = self.read(buffer.data[place : place + size], offset)
        return counts.tolist()

    def _read_queued(
        self,
        buffer: np.ndarray,
        places: np.ndarray,
        offsets: np.ndarray,
        sizes: np.ndarray,
        depth: int,
        done: np.ndarray,
    ) -> None:
        """Do reads by the kernel's queue; `done` are the bytes that each got."""
        requests = np.zeros((len(sizes), 8), np.int64)  # of the kernel's `struct iocb`
        requests[:, 0] = np.arange(len(sizes))  # which comes back in the event
        requests[:, 2] = self._descriptor << 32  # in the lower half, 0: a read
        requests[:, 3:6] = np.stack([buffer.ctypes.data + places, sizes, offsets], axis=1)
        with lent_queue() as queue:
            if queue:
                _queue_all(queue, depth, requests, done)

    def forget_cached(self) -> None:
        """Drop the file's pages from the page cache, so that the next read is of the device."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def _read_once(self, buffer: memoryview, offset: int) -> int:
        try:
            return os.preadv(self._descriptor, [buffer], offset)
        except OSError as error:
            remedy = (
                "pass direct=False" if self.direct and error.errno in _UNSUPPORTED else "check the disk, or restore"
            )
            text = f"{error.strerror} when reading {len(buffer)} bytes at offset {offset}; {remedy}"
            raise OSError(error.errno, text, str(self.path)) from None


_pread = types.ExternalFunction("pread", types.intp(types.intc, types.uintp, types.uintp, types.int64))


@compiled
def _pread_all(descriptor, buffer, places, offsets, sizes, done):
    """Do reads one after the other; `done` are the bytes that each got."""
    for k in range(len(places)):
        done[k] = _pread(descriptor, buffer.ctypes.data + places[k], sizes[k], offsets[k])


_QUEUE_READS = 64
"""Reads in a queue, at most."""

_FEWEST_READS, _COPYING_THREADS = 4, 4
"""Reads that a thread asks for at once, at least; and threads that ask for reads and copy what they brought, at most:
one thread copies faster than most disks read."""

_CALLS = {"x86_64": (206, 208, 209), "aarch64": (0, 4, 2)}
"""Numbers of the calls io_setup, io_getevents and io_submit, for which the C library has no functions."""

_SETUP, _GET, _SUBMIT = _CALLS.get(platform.machine() if sys.platform == "linux" else "", (-1, -1, -1))

_syscall = types.ExternalFunction("syscall", types.intp(*[types.intp] * 6))

_idle_queues: list[int] = []
"""Kept until the process ends, because ending one takes the kernel some milliseconds."""

os.register_at_fork(after_in_child=_idle_queues.clear)  # a child has none of its parent's


@contextmanager
def lent_queue() -> Iterator[int]:
    """Lend one of the kernel's queues to one thread at a time; 0: the system gives none."""
    try:
        queue = _idle_queues.pop()
    except IndexError:
        made = np.zeros(1, np.int64)
        queue = int(made[0]) if _SETUP >= 0 and not _new_queue(_QUEUE_READS, made) else 0
    yield queue
    if queue:
        _idle_queues.append(queue)  # not after an error


@compiled
def _new_queue(depth, made):
    return _syscall(_SETUP, depth, made.ctypes.data, 0, 0, 0)


@compiled
def _queue_all(queue, depth, requests, done):
    """Keep up to `depth` reads in the queue; `done` are the bytes that each got.

    It returns when no read is in the queue any more. Those that the kernel does not take are left out.
    """
    addresses = np.empty(len(requests), np.int64)
    for k in range(len(requests)):
        addresses[k] = requests.ctypes.data + k * requests.strides[0]
    events = np.empty((depth, 4), np.int64)  # of `struct io_event`: number, request, result and another
    asked, answered = 0, 0
    while True:
        room = min(depth - (asked - answered), len(requests) - asked)
        if room > 0:
            asked += max(0, _syscall(_SUBMIT, queue, room, addresses.ctypes.data + addresses.itemsize * asked, 0, 0))
        if asked == answered:
            return
        for k in range(_syscall(_GET, queue, 1, depth, events.ctypes.data, 0)):  # none after a signal
            done[events[k, 0]] = events[k, 2]
            answered += 1


class ReadCounts(NamedTuple):
    """What was read from a file.

    Args:
        nbytes: bytes that were read, whole blocks and gaps included.
        wanted_bytes: bytes that they were read for.
        reads: number of reads.
    """

    nbytes: int = 0
    wanted_bytes: int = 0
    reads: int = 0


class _OfProcess:
    """State of a `DirectFile` that the threads of one process share.

    Args:
        pid: the process.
        counts: as in `DirectFile`.
    """

    def __init__(self, pid: int, counts: "ReadCounts | None" = None) -> None:
        self.pid, self.counts = pid, counts or ReadCounts()
        self.lock, self.buffers = threading.Lock(), list[np.ndarray]()


def close_with(owner: object, descriptor: int) -> None:
    """Close a descriptor when its owner is freed.

    Without a line of Python: an interrupt that arrives in one of a finalizer ends it before the file is closed.
    """
    both = zip(map(_open_files.pop, [descriptor]), map(os.close, [descriptor]), strict=False)
    _open_files[descriptor] = weakref.ref(owner, partial(next, both))


def _open(path: Path, direct: bool | Literal["auto"], folder: int | None) -> tuple[int, int]:
    """Open a file; return its descriptor, and the size of the blocks that it is read in (1: of any bytes)."""
    if not isinstance(direct, bool) and direct != "auto":
        raise ValueError(f'direct is {direct!r}; pass True, False or "auto"')
    if direct and (found := _open_direct(path, folder)):
        return found
    if direct is True:
        raise ValueError(
            f'direct is True, but the file system of {path} does not support O_DIRECT; pass direct="auto" to read '
            "through the page cache there, or copy the folder to another file system"
        )
    if direct:
        warnings.warn(
            f"the file system of {path} does not support O_DIRECT, so rows are read through the page cache; pass "
            "direct=False if that is meant, or copy the folder to another file system",
            RuntimeWarning,
            stacklevel=4,  # where the store is made, so that each place says it once
        )
    descriptor = _open_at(path, folder)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
    return descriptor, 1


def _open_at(path: Path, folder: int | None, more: int = 0) -> int:
    if folder is None:
        return os.open(path, os.O_RDONLY | more)
    return os.open(path.name, os.O_RDONLY | more, dir_fd=folder)


def _open_direct(path: Path, folder: int | None) -> tuple[int, int] | None:
    """Open a file with O_DIRECT and find the smallest block that can be read; None where that is not supported."""
    if not hasattr(os, "O_DIRECT"):
        return None
    try:
        descriptor = _open_at(path, folder, os.O_DIRECT)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        raise
    try:
        for block in _BLOCKS:
            if _can_read(descriptor, block):
                return descriptor, block
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _can_read(descriptor: int, block: int) -> bool:
    """Read one block into memory that is aligned to no more than a block."""
    try:
        os.preadv(descriptor, [memoryview(mmap.mmap(-1, 2 * block))[block:]], 0)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return False
        raise
    return True


def run_waiting(tasks: Sequence[Callable[[], object]], threads: int) -> None:
    """Run tasks that mostly wait, in the calling thread and threads of their own, and return when all are done.

    After an error or an interrupt no further task starts, and the call returns when those that run have ended. No
    thread outlives the call, so that a fork, an interrupt or a forgotten object leaves none behind.

    Args:
        threads: number of threads, the calling one included; fewer if the system can't start so many, as at the end of
            the interpreter.
    """
    waiting, errors = deque(tasks), []

    def work() -> None:
        try:
            while True:
                try:
                    task = waiting.popleft()
                except IndexError:
                    return
                task()
        except BaseException as error:  # raised again in the calling thread
            errors.append(error)
            waiting.clear()

    helpers: list[threading.Thread] = []

    def join() -> None:
        waiting.clear()
        for helper in helpers:
            helper.join()

    try:
        with deferred_interrupt(), suppress(RuntimeError):  # a thread is either not started, or in the list
            # A thread that is started while the interpreter ends never runs, and its start is waited for, for ever.
            for _ in range(0 if sys.is_finalizing() else min(threads, len(tasks)) - 1):
                helper = threading.Thread(target=work, name="workbench-io", daemon=True)
                helper.start()
                helpers.append(helper)
        work()
        complete_despite_interrupt(join)
        if errors:
            raise errors[0]
    finally:
        complete_despite_interrupt(join)
        errors.clear()  # an error refers to this frame: without a cycle, what the tasks refer to is freed with it
