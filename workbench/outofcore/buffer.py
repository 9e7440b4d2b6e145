"""`PartitionBuffer`: partitions of a store in memory, state after state of an order (MariusGNN, section 5).

The order decides which partitions are in the buffer; this is the mechanism that obeys it. While the caller trains in
one state, a thread writes back what has left the buffer and reads what the next state adds.
"""

from collections.abc import Generator
from contextlib import ExitStack
from typing import Any, Literal
from weakref import WeakSet

from workbench.core.errors import check_at_least, check_type
from workbench.core.interrupts import complete_despite_interrupt
from workbench.core.traffic import Traffic
from workbench.outofcore.buffer_epoch import BufferEpoch, slots_needed
from workbench.outofcore.buffer_io import BufferIO
from workbench.outofcore.buffer_rows import SlotMemory
from workbench.outofcore.buffer_state import BufferState
from workbench.outofcore.epoch_io import EpochIO, check_order
from workbench.outofcore.open_epochs import close_at_exit, saved_on_termination
from workbench.outofcore.partition_store import PartitionStore


class PartitionBuffer:
    """Keeps c partitions of a store and the edges between them in memory.

        with wb.PartitionBuffer(store, capacity=8) as buffer:
            for state in buffer.epoch(wb.comet_order(32, 8, 8)):
                batch = state.sample(sampler, …)
                x = state.rows.read(batch.node_ids)

    Use it in a `with` block, or call `close()` when done: both write the rows that an epoch has changed, also if its
    loop was left by `break`. An epoch that is still open when the process ends in an orderly way, by SIGTERM too, is
    closed then, and an error that this gives can only be printed. After SIGKILL or a power cut every partition is as it
    was last written.

    Memory: c partitions (`SlotMemory`), with `prefetch` as many more as a state adds; the edges of c² buckets, with
    `prefetch` those of the next state as well; and the graph of a state's buckets, built when it is sampled from first.
    One epoch runs at a time; each begins empty, so that epochs of one order move the same bytes
    (`workbench.epoch_io`).

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
