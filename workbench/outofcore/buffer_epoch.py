"""`BufferEpoch`: which slot of a buffer has which partition, and what is read and written between two states."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from workbench.core.interrupts import complete_despite_interrupt
from workbench.features.io_threads import run_waiting
from workbench.outofcore.buffer_rows import BufferRows
from workbench.outofcore.buffer_state import Buckets, BufferState
from workbench.outofcore.epoch_io import loads_of

if TYPE_CHECKING:
    from workbench.outofcore.buffer import PartitionBuffer


class BufferEpoch:
    """The states of one epoch: which slot has which partition, and what is read and written between states."""

    def __init__(self, buffer: "PartitionBuffer", order: Any) -> None:
        self._buffer, self._order, self._store = buffer, order, buffer.store
        self._loads = loads_of(order.states)
        ahead = max((len(loaded) for loaded in self._loads[1:]), default=0) if buffer._prefetch else 0
        self._memory = buffer._memory_of(order.states.shape[1] + ahead)
        self._free = list(range(self._memory.num_slots))
        self._slots = torch.full((self._store.num_partitions,), -1, dtype=torch.int64)
        self._changed = torch.zeros(self._store.num_partitions, dtype=torch.bool)
        self._leaving: list[tuple[int, int]] = []  # partitions that have left the buffer, and their slots
        self._buckets: Buckets = {}
        self._read: tuple[dict[int, int], Buckets] = ({}, {})

    def states(self) -> Iterator[BufferState]:
        state = None
        try:
            for number in range(len(self._loads)):
                if not (number and self._buffer._prefetch):
                    self._move(number)
                self._enter(number)
                state = self._state(number)
                job = _Job(partial(self._move, number + 1)) if self._reads_ahead(number) else None
                try:
                    yield state
                finally:
                    state.end()
                    if job is not None:
                        complete_despite_interrupt(job.join)
                if job is not None:
                    job.result()
                self._leave(number)
        finally:
            complete_despite_interrupt(self._flush)

    def _reads_ahead(self, number: int) -> bool:
        return self._buffer._prefetch and number + 1 < len(self._loads)

    def _move(self, number: int) -> None:
        """Write back what has left the buffer, and read what a state adds."""
        self._write(self._leaving)
        self._free += [slot for _, slot in self._leaving]
        self._leaving = []
        loaded = self._loads[number].tolist()
        slots, buckets = {partition: self._free.pop() for partition in loaded}, Buckets()
        runs = self._buffer._edges.runs(self._loads[number], self._order.states[number])
        tasks = [partial(self._read_rows, partition, slot) for partition, slot in slots.items()]
        tasks += [partial(self._read_edges, run, buckets) for run in runs]
        run_waiting(tasks, self._buffer._threads)
        self._read = slots, buckets

    def _read_rows(self, partition: int, slot: int) -> None:
        self._buffer._file.read(partition, self._memory.record(slot))
        nbytes = self._store.partition_bytes
        self._buffer._add(loads=1, row_bytes=nbytes)
        self._count("rows", self._store.layout.nodes_of(partition), nbytes)

    def _read_edges(self, run: tuple[int, int], buckets: Buckets) -> None:
        found = self._buffer._edges.read(run)
        nbytes = self._buffer._edges.run_bytes(run)
        self._buffer._add(edge_bytes=nbytes)
        self._count("edges", sum(len(bucket.src) for bucket in found.values()), nbytes)
        buckets.update(found)

    def _count(self, item: str, count: int, nbytes: int) -> None:
        if self._buffer._traffic is not None:
            self._buffer._traffic.add("disk", item, count, nbytes)

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
        slots, traffic = self._slots.clone(), self._buffer._traffic
        learnt = self._store.learnt
        rows = BufferRows(self._memory, slots, self._changed if learnt else None, traffic=traffic)
        state_rows = BufferRows(self._memory, slots, self._changed, array=1) if learnt else None
        partitions = self._order.states[number].sort().values
        return BufferState(number, partitions, rows, state_rows, self._buckets, self._order, self._store)

    def _write(self, pairs: list[tuple[int, int]]) -> None:
        """Write back partitions that have changed; of several errors the first is raised, after all were tried."""
        changed = [(partition, slot) for partition, slot in pairs if bool(self._changed[partition])]
        errors: list[OSError] = []
        run_waiting([partial(self._write_one, *pair, errors) for pair in changed], self._buffer._threads)
        if errors:
            raise errors[0]

    def _write_one(self, partition: int, slot: int, errors: list[OSError]) -> None:
        try:
            self._buffer._file.write(partition, self._memory.record(slot))
        except OSError as error:
            errors.append(error)
            return
        self._changed[partition] = False
        self._buffer._add(written_bytes=self._store.partition_bytes)

    def _flush(self) -> None:
        held = [(partition, int(slot)) for partition, slot in enumerate(self._slots.tolist()) if slot >= 0]
        self._write([*self._leaving, *held])


class _Job:
    """A function that runs in a thread of its own."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._error: BaseException | None = None

        def run() -> None:
            try:
                work()
            except BaseException as error:  # raised again by result()
                self._error = error

        self._thread = threading.Thread(target=run, name="workbench-prefetch", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def result(self) -> None:
        """Raise its error, if it had one."""
        if self._error is not None:
            raise self._error
