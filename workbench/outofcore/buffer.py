"""`PartitionBuffer`: partitions of a store in memory, state after state of an order (MariusGNN, section 5).

The order decides which partitions are in the buffer; this is the mechanism that obeys it. While the caller trains in
one state, a thread writes back what has left the buffer and reads what the next state adds.
"""

import threading
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal
from weakref import WeakSet

import torch
from torch import Tensor

from workbench import files
from workbench.core.errors import check_at_least, check_type
from workbench.core.graph import Graph
from workbench.core.interrupts import complete_despite_interrupt
from workbench.core.traffic import Traffic
from workbench.features.io_threads import run_waiting
from workbench.outofcore.bucket_order import BucketOrder
from workbench.outofcore.buffer_graph import buffer_graph
from workbench.outofcore.buffer_rows import BufferRows, SlotMemory
from workbench.outofcore.edge_buckets import Bucket, EdgeBuckets
from workbench.outofcore.epoch_io import EpochIO, check_order, loads_of
from workbench.outofcore.partition_file import PartitionFile
from workbench.outofcore.partition_store import PartitionStore

Buckets = dict[tuple[int, int], Bucket]


class BufferState:
    """What is in the buffer until the loop asks for the next state.

    Args:
        number: of the state, from 0.
        partitions: int64 [c], ascending.
        rows: values by store id.
        state_rows: optimizer state by store id; None for features.
        buckets: edges between the partitions.
        order: of the epoch.
        store: what the buffer reads.
    """

    def __init__(
        self,
        number: int,
        partitions: Tensor,
        rows: BufferRows,
        state_rows: BufferRows | None,
        buckets: Buckets,
        order: Any,
        store: PartitionStore,
    ) -> None:
        self.number, self.partitions, self.rows, self.state_rows = number, partitions, rows, state_rows
        self._buckets, self._order, self._store = buckets, order, store
        self._graph, self._lock = None, threading.Lock()

    @property
    def graph(self) -> Graph:
        """The edges in the buffer, by destination, for samplers; nodes of other partitions have none."""
        with self._lock:
            if self._graph is None:
                self._graph = buffer_graph(self._store.layout, self._buckets)
            return self._graph

    def edges(self) -> Tensor:
        """The edges that this state trains, int64 [n, 2], or [n, 3] with types: source, destination, type.

        Raises:
            ValueError: the order is one of nodes.
        """
        size, parts = self._store.partition_rows, []
        for i, j in self._trained():
            bucket = self._buckets[i, j]
            columns = [bucket.src.long() + i * size, bucket.dst.long() + j * size]
            columns += [] if bucket.edge_type is None else [bucket.edge_type.long()]
            parts.append(torch.stack(columns, 1))
        width = 2 if self._store.layout.edge_type is None else 3
        return torch.cat(parts) if parts else torch.empty(0, width, dtype=torch.int64)

    def edge_ids(self) -> Tensor:
        """Edge ids of `edges()`, int64 [n]."""
        parts = [self._buckets[pair].edge_ids for pair in self._trained()]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)

    def _trained(self) -> list[tuple[int, int]]:
        if not isinstance(self._order, BucketOrder):
            raise ValueError("the order assigns nodes to states, not edges; pass a BucketOrder, such as comet_order's")
        here = (self._order.state_of_bucket == self.number).nonzero().tolist()
        return [(i, j) for i, j in here]

    def end(self) -> None:
        """Refuse the state's rows from now on."""
        for rows in (self.rows, self.state_rows):
            if rows is not None:
                rows.end()

    def __repr__(self) -> str:
        return f"BufferState({self.number}: partitions {self.partitions.tolist()})"


class PartitionBuffer:
    """Keeps c partitions of a store and the edges between them in memory.

        with wb.PartitionBuffer(store, capacity=8) as buffer:
            for state in buffer.epoch(wb.comet_order(32, 8, 8)):
                batch = sampler.sample(state.graph, …)
                x = state.rows.read(batch.node_ids)

    Memory: c partitions (`SlotMemory`), with `prefetch` as many more as a state adds; the edges of c² buckets, and the
    graph that is built of them when a state's `graph` is asked for. One epoch runs at a time; each begins empty, so that
    epochs of one order move the same bytes (`workbench.epoch_io`).

    Args:
        store: the store. Learnt rows are written back when their partition leaves the buffer and at the end of the
            epoch, whatever ends it; a process that is killed leaves every partition as it was last written.
        capacity: most partitions in the buffer, c.
        prefetch: read and write in a background thread while the caller trains; results are the same.
        direct: past the page cache (O_DIRECT); "auto": where the file system can.
        io_threads: partitions that are read or written at the same time.
        verify: compare checksums of all that is read.
        traffic: counts what is read, as "disk": "rows" and "edges", and rows read from the buffer, as "host".

    Raises:
        ValueError: a number out of range, or another process writes to the store.
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
        self._prefetch, self._threads, self._traffic = prefetch, io_threads, traffic
        self._file = PartitionFile(store.folder, store.layout, direct=direct, verify=verify)
        index = store.layout, store.bucket_edges, store.bucket_checksums
        self._edges = EdgeBuckets(store.folder, *index, direct=self._file.direct, verify=verify)
        self._memory: SlotMemory | None = None
        self._counts, self._counting, self._running = EpochIO(), threading.Lock(), False
        self._epochs: WeakSet[Generator[BufferState, None, None]] = WeakSet()

    @property
    def io(self) -> EpochIO:
        """What has moved so far, in all epochs."""
        return self._counts

    def __enter__(self) -> "PartitionBuffer":
        return self

    def __exit__(self, *_: object) -> None:
        """End the epoch, also one whose loop a traceback still refers to, as in a notebook after an error."""
        for states in list(self._epochs):
            complete_despite_interrupt(states.close)
        self._memory = None

    def epoch(self, order: Any) -> Iterator[BufferState]:
        """Yield the states of an order; each is valid until the next one is asked for.

        Args:
            order: `BucketOrder` or `NodeOrder` over the store's partitions, of at most `capacity` in a state.

        Raises:
            ValueError: an order of other sizes, or another epoch of the buffer has not ended.
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
        return states

    def _epoch(self, order: Any) -> Generator[BufferState, None, None]:
        if self._running:
            raise ValueError("an epoch of this buffer has not ended; finish its loop, or close() what epoch() returned")
        self._running = True
        try:
            with _writer(self.store):
                yield from _Epoch(self, order).states()
        finally:
            self._running = False

    def _memory_of(self, num_slots: int) -> SlotMemory:
        if self._memory is None or self._memory.num_slots != num_slots:
            self._memory = None  # freed before the next is allocated
            self._memory = SlotMemory(self.store.layout, num_slots)
        return self._memory

    def _add(self, **moved: int) -> None:
        with self._counting:
            now = self._counts
            self._counts = EpochIO(
                **{name: getattr(now, name) + moved.get(name, 0) for name in EpochIO.__annotations__}
            )


class _writer:
    """Lets one process at a time write to a store."""

    def __init__(self, store: PartitionStore) -> None:
        self._lock = files.locked(Path(f"{store.folder}.lock"), wait=False) if store.learnt else None
        self._folder = store.folder

    def __enter__(self) -> None:
        if self._lock is not None and not self._lock.__enter__():
            self._lock.__exit__(None, None, None)
            raise ValueError(f"another process, or another buffer, writes to {self._folder}; wait until it has ended")

    def __exit__(self, *error: Any) -> None:
        if self._lock is not None:
            self._lock.__exit__(*error)


class _Epoch:
    """The states of one epoch: which slot has which partition, and what is read and written between states."""

    def __init__(self, buffer: PartitionBuffer, order: Any) -> None:
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
