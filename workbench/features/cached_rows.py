"""`CachedRows`: keeps some rows of a slower store in a buffer, and replaces them by a policy."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_device, check_fits, check_ids
from workbench.core.machine import Traffic
from workbench.core.shared_storage import move_packed
from workbench.core.trace import AccessTrace
from workbench.core.units import format_bytes
from workbench.features.cache.policies import MAX_CAPACITY, make_machine
from workbench.features.memory_rows import as_store
from workbench.features.protocols import FeatureStore, Stageable, WrappedStore, check_rows, check_store
from workbench.features.stage import StagedRows, stage_ids
from workbench.kernels.buffers import to_device, uninitialised
from workbench.kernels.gather import gather_rows, gather_unchecked
from workbench.kernels.relabel import IdIndex


class CacheCounts(NamedTuple):
    """Hits and misses of a cache since it was made."""

    hits: int
    misses: int

    @property
    def miss_rate(self) -> float:
        """Misses per access; not a number before the first."""
        accesses = self.hits + self.misses
        return self.misses / accesses if accesses else float("nan")


class CachedRows(WrappedStore):
    """A cache in front of a store, in batch semantics: each read queries all its ids, then replaces rows.

    An access hits if its row is in the cache when the read begins. All others are read from the store at once, and the
    policy then decides which of them replace which rows. `simulate_cache(trace, …, semantics="batch")` counts the same
    hits. Thread-safe, on streams of a GPU too; concurrent reads are served one after the other. A forked child has a
    copy of the cache, a process that unpickles it an empty one.

    Args:
        store: a store, tensor or array. Its rows must not change except through `write`.
        capacity_rows: rows that the cache has room for, at least 1; no more than the store has are allocated.
        policy: a name of `CACHE_POLICIES`.
        device: of the buffer, and so of the rows that are read; None: that of the store.
        rows: int64 or int32 [any], ids of the rows of a static cache, which is filled with the first `capacity_rows` of
            them at once; for policy "static" alone.
        trace: all reads to come, for the policies "belady" and "belady-bypass" alone.
        traffic: counts the hits, as rows of "host" or, with a buffer on a device, of "device"; the store counts the
            misses.

    Raises:
        ValueError: an unknown policy, a capacity below 1, what the policy needs is missing, or a device that this
            process can't use.
        IndexError: an id of `rows` or `trace` that is out of range.
        CapacityError: the buffer does not fit into host memory.
    """

    def __init__(
        self,
        store: FeatureStore | Tensor,
        capacity_rows: int,
        *,
        policy: str = "lru",
        device: str | torch.device | None = None,
        rows: Tensor | None = None,
        trace: AccessTrace | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self._store = as_store(store, "store")
        check_store("store", self._store)
        check_at_least("capacity_rows", capacity_rows, 1, most=MAX_CAPACITY)
        self._device = self._store.device if device is None else check_device("device", device)
        self._options = {"policy": policy, "device": device, "rows": rows, "trace": trace, "traffic": traffic}
        self._new_machine = partial(
            make_machine, policy, len(self._store), capacity_rows, batches=True, rows=rows, trace=trace
        )
        self._trace, self._traffic = trace, traffic
        row, room = torch.empty(1, *self.row_shape, dtype=self.dtype), min(capacity_rows, max(1, len(self._store)))
        if self._device.type == "cpu":
            check_fits(f"a cache of {room:,} rows", room * row.nbytes, "lower capacity_rows")
        self._buffer = uninitialised(row.new_empty(0, device=self._device), room, *self.row_shape)
        self._row_bytes = row.nbytes
        self._link = "host" if self._device.type == "cpu" else "device"
        self._process, self._of_process, self._valid, self._next_read = os.getpid(), threading.Lock(), False, 0
        self._hits = self._misses = 0
        self._used = torch.cuda.Event() if self._device.type == "cuda" else None
        with self._alone():
            self._make_valid()
            self._count(0, 0)

    @property
    def device(self) -> torch.device:
        """Device of the buffer."""
        return self._buffer.device

    @property
    def capacity_rows(self) -> int:
        """Rows that the cache has room for."""
        return len(self._buffer)

    @property
    def counts(self) -> CacheCounts:
        """Hits and misses since the cache was made."""
        with self._lock:
            return CacheCounts(self._hits, self._misses)

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read rows from the cache and, at once, all others from the store.

        Args:
            ids: int64 or int32 [n], not necessarily unique, on any device.
            out: [n, *row_shape] to write to and return, in the dtype of the store and on the device of the cache; None
                allocates it.

        Returns:
            [n, *row_shape], one row per id, on the device of the cache.

        Raises:
            IndexError: an id out of range.
            TypeError: ids that are no integers, or `out` of another dtype.
            ValueError: `out` of another shape or on another device; rows of the store that require a gradient; a read
                other than the next one of `trace`.
        """
        wanted = check_ids("ids", ids, len(self)).cpu()
        if out is not None:
            check_rows("out", out, self, len(wanted), on_device=True)
        with self._alone():
            return self._read(wanted, out, lambda missing: self._store.read(missing) if len(missing) else None)

    def write(self, ids: Tensor, rows: Tensor) -> None:
        """Replace rows in the store and, where they are cached, in the cache.

        Args:
            ids: int64 or int32 [n], each id once, on any device.
            rows: [n, *row_shape] in the dtype of the store, on any device.

        Raises:
            IndexError: an id out of range.
            TypeError: a store that can't be written, ids that are no integers, or rows of another dtype.
            ValueError: an id that occurs twice, or rows of another shape.
        """
        if (write := getattr(self._store, "write", None)) is None:
            raise TypeError(f"{type(self._store).__name__} can't be written; cache a store with a write method")
        wanted = check_ids("ids", ids, len(self), unique=True).cpu()
        check_rows("rows", rows, self, len(wanted))
        with self._alone():
            self._make_valid()
            self._valid = False
            write(wanted, rows)
            self._keep(torch.from_numpy(self._machine.query(wanted.numpy())), rows.detach())
            self._valid = True

    def stage(self, ids: Tensor, *, traffic: Traffic | None = None) -> FeatureStore:
        """Fetch rows as one read; those that are not cached are staged by the store if it stages its own way.

        Args:
            ids: int64 or int32 [n]. Collective if the store's `stage` is, even if all rows are cached.
            traffic: counts the rows that are read from the result.

        Returns:
            A store that serves exactly these rows.
        """
        index = IdIndex([check_ids("ids", ids, len(self)).cpu()], len(self))
        with self._alone():
            rows = self._read(index.ids, None, self._stage_missing)
        return StagedRows(index, rows, traffic=traffic)

    def clear(self) -> None:
        """Empty the cache, or refill it if it is static; a trace begins again, and the counts go on."""
        with self._alone():
            self._valid, self._next_read = False, 0
            self._make_valid()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock; on a GPU, also let the thread's stream wait for the last use of the buffer on another one."""
        with self._lock:
            if self._used is None:
                yield
                return
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(self._used)
            self._buffer.record_stream(stream)
            try:
                yield
            finally:
                self._used.record(stream)

    @property
    def _lock(self) -> threading.Lock:
        """The lock of this process: in a forked child, a thread that does not exist there might hold its parent's."""
        if self._process != os.getpid():
            self._process, self._of_process = os.getpid(), threading.Lock()
        return self._of_process

    def _stage_missing(self, missing: Tensor) -> Tensor:
        store = self._store.stage(missing) if isinstance(self._store, Stageable) else self._store
        return store.read(missing)

    def _read(self, ids: Tensor, out: Tensor | None, fetch: Callable[[Tensor], Tensor | None]) -> Tensor:
        self._make_valid()
        self._check_follows_trace(ids)
        slots = torch.from_numpy(self._machine.query(ids.numpy()))
        missing = (slots < 0).nonzero()[:, 0]
        fetched = fetch(ids[missing])
        if fetched is not None:
            _refuse_gradients(fetched)
        held = slots.clamp(min=0)
        self._valid = False
        into = torch.from_numpy(self._machine.replace(ids.numpy(), slots.numpy()))
        kept = (into >= 0).nonzero()[:, 0]
        held, others, kept, into, new = self._moved(held, missing, kept, into[kept], fetched)
        # On a GPU a check of the range would wait for it.
        gather = gather_rows if self._buffer.device.type == "cpu" else gather_unchecked
        found = gather(self._buffer, held, out=out)
        if fetched is not None:
            found.index_copy_(0, others, new)
        if len(kept):
            self._buffer.index_copy_(0, into, found.index_select(0, kept))
        self._next_read += 1
        self._count(len(ids) - len(missing), len(missing))
        self._valid = True
        return found

    def _keep(self, slots: Tensor, rows: Tensor) -> None:
        """Copy rows into slots; rows whose slot is −1 are left out."""
        kept = (slots >= 0).nonzero()[:, 0]
        if len(kept):
            into, new = self._moved(slots[kept], rows.index_select(0, to_device(kept, rows.device)))
            self._buffer.index_copy_(0, into, new)

    def _moved(self, *tensors: Tensor | None) -> tuple[Any, ...]:
        """Copy tensors to the device of the buffer, to a GPU in one copy."""
        moved = move_packed(dict(enumerate(tensors)), self.device)
        return tuple(moved[position] for position in range(len(tensors)))

    def _make_valid(self) -> None:
        """Start again if an error or an interrupt came while the slots and the buffer were being changed."""
        if self._valid:
            return
        self._machine = self._new_machine()
        if self._trace is not None:
            self._machine.seek(int(self._trace.offsets[self._next_read]))
        rows = self._machine.resident_rows()
        if len(rows):
            kept = self._store.read(rows)
            _refuse_gradients(kept)
            self._keep(torch.arange(len(rows)), kept)
        self._valid = True

    def _check_follows_trace(self, ids: Tensor) -> None:
        if self._trace is None:
            return
        read = self._next_read
        if read == len(self._trace):
            raise ValueError(f"read {read} is beyond the trace of {read} reads; pass a longer trace, or call clear()")
        lo, hi = self._trace.offsets[read : read + 2].tolist()
        if not torch.equal(ids, self._trace.ids[lo:hi].cpu()):
            given = f"differs from that of the trace given to {self._options['policy']}"
            raise ValueError(f"read {read} {given}; read its ids in order, or use a policy that needs no trace")

    def _count(self, hits: int, misses: int) -> None:
        self._hits, self._misses = self._hits + hits, self._misses + misses
        if self._traffic is not None:
            self._traffic.add(self._link, "rows", hits, hits * self._row_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        """Make an empty cache where it is unpickled, such as in a spawned process; counts begin at 0."""
        return partial(CachedRows, **self._options), (self._store, self.capacity_rows)

    def __repr__(self) -> str:
        size = f"{self.capacity_rows:,} of {len(self):,} rows, {format_bytes(self._buffer.nbytes)} on {self.device}"
        return f"CachedRows({size}, policy={self._options['policy']!r}, store={self._store!r})"


def _refuse_gradients(rows: Tensor) -> None:
    if rows.requires_grad:
        raise ValueError("rows that require a gradient can't be cached, as each read would need it; detach them")


class RecordedRows(WrappedStore):
    """Wraps a store and records the ids of every `read` and `stage`, in order; it moves nothing itself.

    The trace is that of a `CachedRows` in its place, which looks up the distinct ids of a `stage` in ascending order.

    Args:
        store: a store, tensor or array.
    """

    def __init__(self, store: FeatureStore | Tensor) -> None:
        self._store = as_store(store, "store")
        check_store("store", self._store)
        self._reads: list[Tensor] = []

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read rows from the store; recorded if that succeeds. Arguments as for `FeatureStore.read`."""
        rows = self._store.read(ids, out=out)
        self._reads.append(ids.detach().cpu().clone())
        return rows

    def stage(self, ids: Tensor, *, traffic: Traffic | None = None) -> FeatureStore:
        """Stage rows of the store, recorded as one read; reads of the staged rows are not recorded."""
        staged = stage_ids(self._store, ids, traffic=traffic)
        self._reads.append(ids.detach().cpu().unique())
        return staged

    @property
    def trace(self) -> AccessTrace:
        """Everything recorded since the start or the last `clear`."""
        return AccessTrace.of(list(self._reads))

    def clear(self) -> None:
        """Forget everything recorded."""
        self._reads.clear()
