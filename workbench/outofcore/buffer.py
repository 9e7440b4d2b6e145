"""`PartitionBuffer`: partitions of a store in memory, state after state of an order (MariusGNN, section 5).

The order decides which partitions are in the buffer; this is the mechanism that obeys it. While the caller trains in
one state, a thread writes back what has left the buffer and reads what the next state adds.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from weakref import WeakSet

from workbench import files
from workbench.core.errors import check_at_least, check_type
from workbench.core.interrupts import complete_despite_interrupt
from workbench.core.traffic import Traffic
from workbench.outofcore.buffer_epoch import BufferEpoch, slots_needed
from workbench.outofcore.buffer_io import BufferIO
from workbench.outofcore.buffer_rows import SlotMemory
from workbench.outofcore.buffer_state import BufferState
from workbench.outofcore.epoch_io import EpochIO, check_order
from workbench.outofcore.partition_store import PartitionStore


class PartitionBuffer:
    """Keeps c partitions of a store and the edges between them in memory.

        with wb.PartitionBuffer(store, capacity=8) as buffer:
            for state in buffer.epoch(wb.comet_order(32, 8, 8)):
                batch = state.sample(sampler, …)
                x = state.rows.read(batch.node_ids)

    Memory: c partitions (`SlotMemory`), with `prefetch` as many more as a state adds; the edges of c² buckets, with
    `prefetch` those of the next state as well; and the graph of a state's buckets, built when it is sampled from first.
    One epoch runs at a time; each begins empty, so that epochs of one order move the same bytes
    (`workbench.epoch_io`).

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
            with _writing_alone(self.store):
                self._io.refresh()
                memory = self._memory_of(slots_needed(order, self._prefetch))
                yield from BufferEpoch(self.store, self._io, memory, order, self._prefetch).states()
        finally:
            self._running = False

    def _memory_of(self, num_slots: int) -> SlotMemory:
        if self._memory is None or self._memory.num_slots != num_slots:
            self._memory = None  # freed before the next is allocated
            self._memory = SlotMemory(self.store.layout, num_slots)
        return self._memory


@contextmanager
def _writing_alone(store: PartitionStore) -> Iterator[None]:
    """Let one buffer at a time, of all processes, write to a store."""
    if not store.learnt:
        yield
        return
    with files.locked(Path(f"{store.folder}.lock"), wait=False) as acquired:
        if not acquired:
            raise ValueError(f"another process, or another buffer, writes to {store.folder}; wait until it has ended")
        yield
