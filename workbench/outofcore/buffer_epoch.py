"""`BufferEpoch`: which slot of a buffer has which partition, and what is read and written between two states."""

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from workbench.core.interrupts import complete_despite_interrupt
from workbench.outofcore.buffer_io import BufferIO
from workbench.outofcore.buffer_rows import BufferRows, SlotMemory
from workbench.outofcore.buffer_state import Buckets, BufferState
from workbench.outofcore.epoch_io import loads_of
from workbench.outofcore.partition_store import PartitionStore


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
        job = _Job(partial(self._move, number + 1)) if ahead else None
        try:
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
