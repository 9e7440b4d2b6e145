"""`PartitionBuffer`: partitions of a store in memory, state after state of an order (MariusGNN, section 5).

The order decides which partitions are in the buffer; this is the mechanism that obeys it. While the caller trains in
one state, a thread writes back what has left the buffer and reads what the next state adds.
"""

import atexit
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import util
from types import FrameType, GeneratorType
from typing import Any, Literal, TypeAlias
from weakref import WeakSet

import torch
from torch import Tensor

from workbench.core.errors import (
    Terminated,
    check_at_least,
    check_type,
    complete_despite_interrupt,
    deferred_interrupt,
)
from workbench.core.machine import Traffic
from workbench.features.direct_file import run_waiting
from workbench.outofcore.buffer_state import Buckets, BufferRows, BufferState, SlotMemory
from workbench.outofcore.partition_store import PartitionStore
from workbench.outofcore.store_files import EdgeBuckets, PartitionFile
from workbench.outofcore.tuning import EpochIO, check_order, loads_of


class PartitionBuffer:
    """Keeps c partitions of a store and the edges between them in memory.

        with wb.outofcore.PartitionBuffer(store, capacity=8) as buffer:
            for state in buffer.epoch(wb.outofcore.comet_order(32, 8, 8)):
                batch = state.sample(sampler, …)
                x = state.rows.read(batch.node_ids)

    Use it in a `with` block, or call `close()` when done: both write the rows that an epoch has changed, also if its
    loop was left by `break`. An epoch that is still open when the process ends in an orderly way, by SIGTERM too, is
    closed then, and an error that this gives can only be printed. After SIGKILL or a power cut every partition is as it
    was last written.

    Memory: c partitions (`SlotMemory`), with `prefetch` as many more as a state adds; the edges of c² buckets, with
    `prefetch` those of the next state as well; and the graph of a state's buckets, built when it is sampled from first.
    One epoch runs at a time; each begins empty, so that epochs of one order move the same bytes
    (`workbench.outofcore.epoch_io`).

    Args:
        store: the store. Learnt rows are written back when their partition leaves the buffer and at the end of the
            epoch, whatever ends it; one epoch at a time, of all processes and paths of the store, can write. On a
            file system that is only read, they are only read, too. A forked child can read the rows of its parent's
            epoch; only the parent goes on with it, and writes.
        capacity: most partitions in the buffer, c.
        prefetch: read and write in a background thread while the caller trains; results are the same.
        direct: past the page cache (O_DIRECT); "auto": where the file system can.
        io_threads: partitions that are read or written at the same time.
        verify: compare checksums of all that is read.
        traffic: counts what is read, as "disk": "rows" and "edges", and rows read from the buffer, as "host".

    Raises:
        ValueError: a number out of range, or the store was rebuilt since it was opened.
        TypeError: `store` is not a `PartitionStore`.
        FileNotFoundError: a file of the store is missing.
    """

    def __init__(
        self,
        store: PartitionStore,
        *,
        capacity: int,
        prefetch: bool = True,
        direct: bool | Literal["auto"] = "auto",
        io_threads: int = 2,
        verify: bool = True,
        traffic: Traffic | None = None,
    ) -> None:
        check_type("store", store, PartitionStore, "pass PartitionStore.open(folder)")
        check_at_least("capacity", capacity, 1, most=store.num_partitions)
        check_at_least("io_threads", io_threads, 1)
        self.store, self.capacity = store, int(capacity)
        self._prefetch, self._running = prefetch, False
        self._io = BufferIO(store, direct=direct, threads=io_threads, verify=verify, traffic=traffic)
        self._memory: SlotMemory | None = None
        self._epochs: WeakSet[Generator[BufferState, None, None]] = WeakSet()

    @property
    def direct(self) -> bool:
        """Whether reads and writes bypass the page cache."""
        return self._io.direct

    @property
    def io(self) -> EpochIO:
        """What has moved so far, in all epochs."""
        return self._io.moved

    def __enter__(self) -> "PartitionBuffer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the epoch: write the rows that it has changed, and free the memory of the buffer.

        Leaving the `with` block does the same, also for an epoch whose loop a traceback still refers to, as in a
        notebook after an error. Another epoch may begin afterwards.

        Raises:
            OSError: the disk reports an error or is full; partitions already written are as they were written.
        """
        for states in list(self._epochs):
            complete_despite_interrupt(states.close)
        self._memory = None

    def epoch(self, order: Any) -> Generator[BufferState, None, None]:
        """Yield the states of an order; each is valid until the next one is asked for.

        Args:
            order: `BucketOrder` or `NodeOrder` over the store's partitions, of at most `capacity` in a state.

        Raises:
            TypeError: not an order.
            ValueError: an order of other sizes, another epoch of the buffer has not ended, another process or buffer
                writes to the store, the store shares its file with another by a hard link, or it was rebuilt since it
                was opened.
            RuntimeError: the epoch is another process's, which forked this one, or another process has written to the
                store.
            CorruptFileError: a partition or bucket is damaged; the message names it.
            OSError: the disk reports an error or is full; partitions already written are as they were written.
        """
        check_order(self.store, order)
        if order.states.shape[1] > self.capacity:
            raise ValueError(
                f"the order has {order.states.shape[1]} partitions in a state, but capacity is {self.capacity}; pass "
                f"PartitionBuffer(store, capacity={order.states.shape[1]}), or an order of fewer"
            )
        states = self._epoch(order)
        self._epochs.add(states)
        close_at_exit(states)
        return states

    def _epoch(self, order: Any) -> Generator[BufferState, None, None]:
        if self._running:
            raise ValueError("an epoch of this buffer has not ended; finish its loop, or close() what epoch() returned")
        self._running = True
        try:
            with ExitStack() as stack:
                writes = self.store.learnt and self._io.folder.writable
                if writes:
                    self._io.folder.check_not_linked()
                    stack.enter_context(saved_on_termination())
                    stack.enter_context(self._io.folder.writing_alone("writes to"))
                self._io.refresh()
                memory = self._memory_of(slots_needed(order, self._prefetch))
                yield from BufferEpoch(self.store, self._io, memory, order, self._prefetch, writes).states()
        finally:
            self._running = False

    def _memory_of(self, num_slots: int) -> SlotMemory:
        if self._memory is None or self._memory.num_slots != num_slots:
            self._memory = None  # freed before the next is allocated
            self._memory = SlotMemory(self.store.layout, num_slots)
        return self._memory


class BufferIO:
    """Moves partitions and buckets between the files of a store and memory.

    Args:
        store: the store.
        direct: past the page cache; "auto": where the file system can.
        threads: partitions or runs of buckets that are read or written at the same time.
        verify: compare checksums of all that is read.
        traffic: counts what is read, as "disk": "rows" and "edges".
    """

    def __init__(
        self,
        store: PartitionStore,
        *,
        direct: bool | Literal["auto"],
        threads: int,
        verify: bool,
        traffic: Traffic | None,
    ) -> None:
        self.traffic, self._store, self._threads = traffic, store, threads
        self.folder = store.open_folder()
        self._file = PartitionFile(self.folder, store.layout, direct=direct, verify=verify)
        index = store.layout, store.bucket_edges, store.bucket_checksums
        self._edges = EdgeBuckets(self.folder, *index, direct=self._file.direct, verify=verify)
        self._moved, self._counting = EpochIO(), threading.Lock()

    @property
    def direct(self) -> bool:
        """Whether reads and writes bypass the page cache."""
        return self._file.direct

    @property
    def moved(self) -> EpochIO:
        """What has moved so far."""
        return self._moved

    def refresh(self) -> None:
        """Read anew where the partitions are: another buffer may have written since the last epoch."""
        self._counting = threading.Lock()  # a fork may have left it locked
        self._file.refresh()

    def read(self, records: Sequence[tuple[int, Tensor]], loaded: Tensor, held: Tensor) -> Buckets:
        """Read partitions, and the buckets that they add to a buffer.

        Args:
            records: partitions, and the memory that each is read into.
            loaded: int64, the partitions that are new in the buffer.
            held: int64, all partitions in the buffer, `loaded` included.

        Returns:
            Buckets by (partition of the sources, partition of the destinations).

        Raises:
            CorruptFileError: a partition or bucket is damaged; the message names it.
            OSError: the device reports an error.
        """
        buckets = Buckets()
        tasks: list[Callable[[], object]] = [partial(self._read_record, *record) for record in records]
        tasks += [partial(self._read_run, run, buckets) for run in self._edges.runs(loaded, held)]
        run_waiting(tasks, self._threads)
        return buckets

    def write(self, records: Sequence[tuple[int, Tensor]], written: Callable[[int], object]) -> None:
        """Write partitions; of several errors the first is raised, after all partitions were tried.

        Args:
            records: partitions and their memory.
            written: called with every partition that has been written.

        Raises:
            OSError: the device is full or reports an error.
        """
        errors: list[OSError] = []
        run_waiting([partial(self._write_record, *record, written, errors) for record in records], self._threads)
        if errors:
            raise errors[0]

    def _read_record(self, partition: int, memory: Tensor) -> None:
        self._file.read(partition, memory)
        self._count("rows", self._store.layout.nodes_of(partition), self._store.partition_bytes)
        self._add(EpochIO(loads=1, row_bytes=self._store.partition_bytes))

    def _read_run(self, run: tuple[int, int], buckets: Buckets) -> None:
        found = self._edges.read(run)
        nbytes = self._edges.run_bytes(run)
        self._count("edges", sum(len(bucket.src) for bucket in found.values()), nbytes)
        self._add(EpochIO(edge_bytes=nbytes))
        buckets.update(found)

    def _write_record(
        self, partition: int, memory: Tensor, written: Callable[[int], object], errors: list[OSError]
    ) -> None:
        try:
            self._file.write(partition, memory)
        except OSError as error:
            errors.append(error)
            return
        written(partition)
        self._add(EpochIO(written_bytes=self._store.partition_bytes))

    def _count(self, item: str, count: int, nbytes: int) -> None:
        if self.traffic is not None:
            self.traffic.add("disk", item, count, nbytes)

    def _add(self, more: EpochIO) -> None:
        with self._counting:
            self._moved = self._moved + more


class BufferEpoch:
    """The states of one epoch.

    Args:
        store: the store.
        io: its files.
        memory: as many slots as `slots_needed` says.
        order: `BucketOrder` or `NodeOrder`.
        prefetch: read what the next state adds, and write what the last one had, in a thread during each state.
        writes: rows can be changed, and are written back.
    """

    def __init__(
        self, store: PartitionStore, io: BufferIO, memory: SlotMemory, order: Any, prefetch: bool, writes: bool
    ) -> None:
        self._writes, self._process = writes, os.getpid()
        self._store, self._io, self._memory, self._order, self._prefetch = store, io, memory, order, prefetch
        self._loads = loads_of(order.states)
        self._free = list(range(memory.num_slots))
        self._slots = torch.full((store.num_partitions,), -1, dtype=torch.int64)
        self._changed = torch.zeros(store.num_partitions, dtype=torch.bool)
        self._leaving: list[tuple[int, int]] = []  # partitions that have left the buffer, and their slots
        self._buckets: Buckets = {}
        self._read: tuple[dict[int, int], Buckets] = ({}, {})

    def states(self) -> Iterator[BufferState]:
        """Yield state after state; at the end, whatever it is, write what has changed."""
        try:
            for number in range(len(self._loads)):
                if not (number and self._prefetch):
                    self._move(number)
                self._enter(number)
                yield from self._show(number)
                self._leave(number)
        finally:
            complete_despite_interrupt(self._flush)

    def _show(self, number: int) -> Iterator[BufferState]:
        """Yield one state, and meanwhile prepare the next."""
        state = self._state(number)
        ahead = self._prefetch and number + 1 < len(self._loads)
        job = None
        try:
            with deferred_interrupt():  # a thread is either not started, or known
                job = Job(partial(self._move, number + 1)) if ahead else None
            yield state
            if self._is_forked:
                raise RuntimeError(
                    f"this epoch is that of process {self._process}, which forked this one ({os.getpid()}); go on with "
                    "it there, and open a buffer of its own here"
                )
        finally:
            if not self._is_forked:  # where a thread that does not exist may have left a lock of the state
                state.end()
                if job is not None:
                    complete_despite_interrupt(job.join)
        if job is not None:
            job.result()

    @property
    def _is_forked(self) -> bool:
        """Whether this is a copy, in a forked child, of an epoch whose rows its parent writes."""
        return os.getpid() != self._process

    def _move(self, number: int) -> None:
        """Write back what has left the buffer, and read what a state adds."""
        self._write(self._leaving)
        self._free += [slot for _, slot in self._leaving]
        self._leaving = []
        loaded = self._loads[number]
        slots = {partition: self._free.pop() for partition in loaded.tolist()}
        records = [(partition, self._memory.record(slot)) for partition, slot in slots.items()]
        self._read = slots, self._io.read(records, loaded, self._order.states[number])

    def _enter(self, number: int) -> None:
        """Let the buffer have what was read."""
        slots, buckets = self._read
        self._read = {}, {}
        for partition, slot in slots.items():
            self._slots[partition], self._changed[partition] = slot, False
        merged = {**self._buckets, **buckets}
        held = self._order.states[number].tolist()
        self._buckets = {(i, j): merged[i, j] for j in held for i in held}

    def _leave(self, number: int) -> None:
        """Take out of the buffer what the next state does not have."""
        if number + 1 == len(self._loads):
            return
        after = set(self._order.states[number + 1].tolist())
        gone = [partition for partition in self._order.states[number].tolist() if partition not in after]
        self._leaving += [(partition, int(self._slots[partition])) for partition in gone]
        self._slots[torch.tensor(gone, dtype=torch.int64)] = -1
        self._buckets = {pair: bucket for pair, bucket in self._buckets.items() if after.issuperset(pair)}

    def _state(self, number: int) -> BufferState:
        slots, changed = self._slots.clone(), self._changed if self._writes else None
        rows = BufferRows(self._memory, slots, changed, traffic=self._io.traffic)
        state_rows = BufferRows(self._memory, slots, changed, state=True) if self._store.learnt else None
        partitions = self._order.states[number].sort().values
        return BufferState(number, partitions, rows, state_rows, self._buckets, self._order, self._store)

    def _write(self, pairs: list[tuple[int, int]]) -> None:
        """Write back those partitions that have changed."""
        changed = [(partition, self._memory.record(slot)) for partition, slot in pairs if self._changed[partition]]
        self._io.write(changed, lambda partition: self._changed.__setitem__(partition, False))

    def _flush(self) -> None:
        if self._is_forked:
            return
        held = [(partition, slot) for partition, slot in enumerate(self._slots.tolist()) if slot >= 0]
        self._write([*self._leaving, *held])


def slots_needed(order: Any, prefetch: bool) -> int:
    """Partitions of memory that an order takes: those of a state, with `prefetch` also what the next one adds."""
    ahead = max((len(loaded) for loaded in loads_of(order.states)[1:]), default=0) if prefetch else 0
    return order.states.shape[1] + ahead


class Job:
    """A function that runs in a thread of its own.

    Args:
        work: the function.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        self._value: Any = None
        self._error: BaseException | None = None

        def run() -> None:
            try:
                self._value = work()
            except BaseException as error:  # raised again by result()
                self._error = error

        self._thread = threading.Thread(target=run, name="workbench-prefetch", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def result(self) -> Any:
        """Return what it returned, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._value


_WAIT_SECONDS = 3.0
"""How long another thread that is inside an epoch is waited for."""

Epoch: TypeAlias = "GeneratorType[Any, None, None]"

_open: WeakSet[Epoch] = WeakSet()

_saving, _terminated = 0, False

_finalizer_of: int | None = None


def close_at_exit(epoch: Generator[Any, None, None]) -> None:
    """Close an epoch when the process ends, if nothing has closed it before.

    Args:
        epoch: a generator that ends when it is closed.
    """
    global _finalizer_of
    assert isinstance(epoch, GeneratorType)
    _open.add(epoch)
    if multiprocessing.parent_process() is not None and _finalizer_of != os.getpid():
        util.Finalize(None, close_all, exitpriority=100)  # such processes end without the functions of atexit
        _finalizer_of = os.getpid()


def close_all() -> None:
    """Close all open epochs of this process, except those that the caller is inside.

    An epoch that fails does not keep others from being closed.

    Raises:
        Exception: of an epoch, as when the disk is full.
    """
    errors, deadline, inside = [], time.monotonic() + _WAIT_SECONDS, _epochs_around(sys._getframe())
    for epoch in list(_open):
        if epoch in inside:
            continue
        try:
            _close(epoch, deadline)
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else ExceptionGroup("several epochs could not be closed", errors)


def _close(epoch: Epoch, deadline: float) -> None:
    while epoch.gi_running and time.monotonic() < deadline:  # in another thread
        time.sleep(0.01)
    if epoch.gi_running:
        raise RuntimeError(
            "the process ends while another thread is inside an epoch of a PartitionBuffer: rows that it has changed "
            "since they were last written are lost; join that thread, or close() the buffer, before the end"
        )
    complete_despite_interrupt(epoch.close)


atexit.register(close_all)


@contextmanager
def saved_on_termination() -> Iterator[None]:
    """Let SIGTERM close all open epochs, and then end the process, while the block runs.

    A handler that the program has set remains. Forked children are ended by SIGTERM at once.
    """
    global _saving
    process, _saving = os.getpid(), _saving + 1
    if _in_main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except Exception:
        if _terminated:  # nobody will see it otherwise
            traceback.print_exc()
        raise
    finally:
        if os.getpid() == process:
            _saving -= 1
            if _terminated:
                _close_and_end()
            elif not _saving:
                _restore_default()


def _terminate(_: int, frame: FrameType | None) -> None:
    """Handle SIGTERM."""
    global _terminated
    _terminated = True
    if _saving and _epochs_around(frame):
        raise Terminated(128 + signal.SIGTERM)  # that epoch ends first, and then the process
    _close_and_end()


def _close_and_end() -> None:
    """Close what is open, and end the process as SIGTERM does."""
    try:
        close_all()
    except Exception:
        traceback.print_exc()
    finally:
        if _in_main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)


def _epochs_around(frame: FrameType | None) -> set[Epoch]:
    """The epochs whose code has called, directly or not, the function of a frame."""
    running, found = {id(epoch.gi_frame): epoch for epoch in list(_open) if epoch.gi_running}, set()
    while frame is not None and running:
        if id(frame) in running:
            found.add(running[id(frame)])
        frame = frame.f_back
    return found


def _restore_default() -> None:
    if _in_main_thread() and signal.getsignal(signal.SIGTERM) is _terminate:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _forget_in_child() -> None:
    """Forget the parent's epochs in a forked child: only the parent writes what they have changed."""
    global _saving, _terminated
    _saving, _terminated = 0, False
    _open.clear()
    _restore_default()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
