"""`read_ahead`: batches are sampled first, and their rows read from disk in an order that is planned (Ginex, DiskGNN).

Batches are those of any loader, so training from disk has the samples, and the losses, of training in memory. A window
of them is sampled ahead; `plan_rows` plans which rows are read before which batch. While the caller trains on one group
of batches, a thread reads the rows that the next group adds, and samples the window after this one.
"""

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from functools import partial
from itertools import islice
from typing import Any, TypeVar
from weakref import WeakSet

import torch
from torch import Tensor

from workbench.core.errors import (
    CapacityError,
    check_at_least,
    check_bytes,
    check_fits,
    check_id_vector,
    check_ids,
    check_type,
    complete_despite_interrupt,
    deferred_interrupt,
)
from workbench.core.machine import Traffic
from workbench.core.minibatch import MiniBatch
from workbench.core.trace import AccessTrace
from workbench.features.memory_rows import TensorRows, as_store
from workbench.features.protocols import FeatureStore, WrappedStore, check_rows, check_store
from workbench.kernels.buffers import uninitialised
from workbench.kernels.relabel import IdIndex
from workbench.outofcore.buffer import Job, close_at_exit
from workbench.outofcore.row_plan import RowPlanner

T = TypeVar("T")

_PIECE_ROWS = 4096
"""Rows that are read at once from a store that can't read to places of a larger tensor."""


def read_ahead(
    batches: Iterable[Any],
    store: FeatureStore | Tensor,
    *,
    memory: int | str,
    window: int | None = None,
    group: int = 1,
    overlap: bool = True,
    traffic: Traffic | None = None,
) -> "ReadAhead":
    """Sample a window of batches first, then read their rows, each before it is needed and as rarely as possible.

        disk = wb.DiskRows(folder)
        loader = wb.batches(graph, train_ids, sampler=sampler, batch_size=1000)
        for step, mb, rows in wb.outofcore.read_ahead(loader, disk, memory="1 GiB"):
            wb.train_step(model, mb, rows, y, cross_entropy, optimizer)

    Samples are those of training in memory, bit for bit, because they don't depend on what is read. `plan_rows` says
    what is read: no policy reads fewer rows of a window with this memory and these groups. Each loop is a loop over
    `batches`: if these are `workbench.batches`, a new epoch. It begins with an empty pool, and whatever ends it frees
    the pool and ends its thread. One loop over several epochs goes on with the rows in memory, and reads fewer:

        steps = loader.steps(10 * len(loader))
        for step, mb, rows in wb.outofcore.read_ahead(steps, disk, memory="1 GiB", window=len(loader)):
            …

    A group's rows are in memory until the loop asks for the next group, so don't pass the object to `wb.prefetch`.

    Memory: `memory` of rows; beside it the samples of two windows, 4 bytes per row of the store, and the buffers of
    `DiskRows`. Planning a window takes 4 more per row of the store, 28 to 36 per row of each of its batches, and 20 per
    row that is read from the store.

    Args:
        batches: batches or tuples that contain one, such as `workbench.batches` or `workbench.edge_batches` yield.
        store: rows by raw-graph id that nobody writes; `DiskRows` or `PackedRows` read directly to the pool.
        memory: memory for rows: at least those of two groups one after the other.
        window: batches that are sampled ahead and planned together; None: all.
        group: batches whose rows are read together. Reads of more rows find more neighbours in the file, and take more
            memory.
        overlap: read a group's rows in a thread while the one before it is trained; otherwise only rows of one group
            need to fit into memory.
        traffic: counts the rows that are read from the pool, as "host".

    Returns:
        An iterable of the items of `batches` with one more element, the rows: (step, batch, rows). `rows` is a store of
        the batch's rows; reading any other row is an error.

    Raises:
        TypeError: `batches` is not iterable, or an item contains no batch.
        ValueError: a number out of range, or rows that require a gradient, as those of `wb.LearnedRows` do outside
            `torch.no_grad()`.
        CapacityError: less memory than a row takes; or, when a window has been planned, than the rows of two groups.

    Source: Park et al., "Ginex" (VLDB 2022), section 4: a superbatch is sampled, then its features are cached by
    Belady's rule; here rows are also read ahead.
    """
    check_type("batches", batches, Iterable, "which is not iterable; pass workbench.batches(…), or a list")
    store = source_of(store)
    for name, number in {"window": 1 if window is None else window, "group": group}.items():
        check_at_least(name, number, 1)
    return ReadAhead(batches, store, pool_rows(store, memory), window, group, overlap, traffic)


def source_of(store: FeatureStore | Tensor) -> FeatureStore:
    """Wrap a tensor in a store, and refuse rows that require a gradient.

    Args:
        store: rows by raw-graph id.
    """
    store = as_store(store, "store")
    check_store("store", store)
    if isinstance(store, TensorRows):
        _check_without_gradient(store._rows)
    return store


def _check_without_gradient(rows: Tensor) -> None:
    if rows.requires_grad:
        raise ValueError("rows that require a gradient can't be read ahead, as each read would need it; detach them")


def row_bytes_of(store: FeatureStore) -> int:
    """Bytes of a row of a store."""
    return torch.empty(1, *store.row_shape, dtype=store.dtype).nbytes


def pool_rows(store: FeatureStore, memory: int | str) -> int:
    """Number of rows of a store that a pool has memory for, no more than the store has.

    Args:
        store: the store.
        memory: at least one row.
    """
    row_bytes = row_bytes_of(store)
    budget = check_bytes("memory", memory)
    if budget < row_bytes:
        raise CapacityError(f"memory is {budget}, less than a row's {row_bytes}; raise it")
    capacity = min(budget // max(1, row_bytes), max(1, len(store)))
    check_fits(f"a pool of {capacity:,} rows", capacity * row_bytes, "lower memory")
    return capacity


class ReadAhead:
    """Batches with their rows; see `workbench.outofcore.read_ahead`.

    Args:
        batches: the batches.
        store: their rows.
        capacity_rows: rows in memory, at most.
        window: batches per window; None: all.
        group: batches whose rows are read together.
        overlap: read a group's rows while the one before it is trained.
        traffic: counts the rows that are read from the pool.
    """

    def __init__(
        self,
        batches: Iterable[Any],
        store: FeatureStore,
        capacity_rows: int,
        window: int | None,
        group: int,
        overlap: bool,
        traffic: Traffic | None,
    ) -> None:
        self._batches, self._traffic = batches, traffic
        self._store: Any = store
        self._window, self._group, self._overlap = window, group, overlap
        self.capacity_rows = capacity_rows
        self._peak, self._open = 0, WeakSet[Generator[tuple[Any, ...], None, None]]()

    @property
    def peak_rows(self) -> int:
        """Rows in memory at the same time, at most, in all loops so far."""
        return self._peak

    def __len__(self) -> int:
        sized: Any = self._batches
        return len(sized)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        epoch = self._epoch(iter(self._batches))
        self._open.add(epoch)
        close_at_exit(epoch)
        return epoch

    def close(self) -> None:
        """End all loops over the object: their threads end, and their memory is freed.

        The end of a loop does the same, but not while a traceback refers to it, as in a notebook after an error.
        """
        for epoch in list(self._open):
            complete_despite_interrupt(epoch.close)

    def _epoch(self, batches: Iterator[Any]) -> Generator[tuple[Any, ...], None, None]:
        """Yield group after group, while a thread prepares the next one."""
        process, groups = os.getpid(), self._groups(batches)
        group: Sequence[tuple[Any, ...]] | None = None
        job: Job | None = None

        def end() -> None:
            for *_, rows in group or ():
                rows.end()
            if os.getpid() == process:  # a forked child has no such thread
                if job is not None:
                    job.join()
                groups.close()

        try:
            group = next(groups, None)
            while group is not None:
                if self._overlap:
                    with deferred_interrupt():  # a thread is either not started, or known
                        job = Job(partial(_next_in_mode, groups, torch.is_grad_enabled()))
                for item in group:
                    yield item
                    if os.getpid() != process:
                        raise RuntimeError(
                            "this loop over read_ahead belongs to the process that forked this one; make another loop"
                        )
                for *_, rows in group:
                    rows.end()
                if job is None:
                    group = next(groups, None)
                else:
                    job.join()
                    group = job.result()
        finally:
            complete_despite_interrupt(end)

    def _groups(self, batches: Iterator[Any]) -> Generator[Sequence[tuple[Any, ...]], None, None]:
        """Plan window after window; read the rows of group after group, and sample the next window meanwhile."""
        with closing(batches) if hasattr(batches, "close") else nullcontext():  # pyright: ignore[reportArgumentType]
            if hasattr(self._store, "rewind"):
                self._store.rewind()
            options: dict[str, Any] = {"overlap": self._overlap, "row_bytes": row_bytes_of(self._store)}
            planner = RowPlanner(len(self._store), self.capacity_rows, **options)
            with torch.inference_mode(False):  # threads write to it, to which the caller's mode does not extend
                no_rows = torch.empty(0, dtype=self._store.dtype)
                pool = uninitialised(no_rows, planner.capacity_rows, *self._store.row_shape)
            ahead = deque(islice(batches, self._window))
            while ahead:
                items, ahead = ahead, deque[Any]()
                plan = planner.plan(trace_of(items, self._group))
                self._peak = max(self._peak, plan.peak_rows)
                places = iter(plan.places.split([len(batch_of(item).node_ids) for item in items]))
                for ids, slots in plan.reads():
                    _read(self._store, ids, slots, pool)
                    group = [items.popleft() for _ in range(min(self._group, len(items)))]
                    ahead.extend(islice(batches, len(group)))
                    yield [self._with_rows(item, next(places), pool) for item in group]

    def _with_rows(self, item: Any, places: Tensor, pool: Tensor) -> tuple[Any, ...]:
        rows = PoolRows(batch_of(item).node_ids.cpu(), places, pool, len(self._store), self._traffic)
        return (*item, rows) if isinstance(item, tuple) else (item, rows)

    def __repr__(self) -> str:
        window = "all" if self._window is None else self._window
        return (
            f"ReadAhead({self.capacity_rows:,} rows in memory, window={window}, group={self._group}, "
            f"overlap={self._overlap}, store={self._store!r})"
        )


def _next_in_mode(groups: Iterator[T], grad_enabled: bool) -> T | None:
    """Return the next group, read in the loop's mode: `torch.no_grad()` does not extend to the thread."""
    with torch.set_grad_enabled(grad_enabled):
        return next(groups, None)


def batch_of(item: Any) -> MiniBatch:
    """Return the batch of an item of a loader: the item, or the batch in a tuple."""
    for part in item if isinstance(item, tuple) else (item,):
        if isinstance(part, MiniBatch):
            return part
    raise TypeError(f"an item of batches is a {type(item).__name__} without a MiniBatch; pass workbench.batches(…)")


def trace_of(items: Iterable[Any], group: int) -> AccessTrace:
    """The rows that groups of batches read.

    Args:
        items: batches, or tuples that contain one.
        group: batches per group.
    """
    trace = AccessTrace.of(batch_of(item).node_ids for item in items)
    ends = trace.offsets[:-1:group]
    return AccessTrace(trace.ids, torch.cat([ends, trace.offsets[-1:]])) if len(trace) else trace


def _read(store: Any, ids: Tensor, slots: Tensor, pool: Tensor) -> None:
    """Read rows to slots of the pool."""
    if hasattr(store, "read_to"):
        store.read_to(ids, pool, slots)
        return
    for some, places in zip(ids.split(_PIECE_ROWS), slots.split(_PIECE_ROWS), strict=True):
        rows = store.read(some)
        _check_without_gradient(rows)
        pool.index_copy_(0, places, rows.cpu())


class PoolRows(WrappedStore):
    """The rows of one batch in a pool, by raw-graph id, until the loop goes on; reading any other row is an error.

    Args:
        ids: int64 [n], ids of the rows.
        places: int32 [n], their slots.
        pool: [slots, …], the rows.
        limit: exclusive upper bound of the ids.
        traffic: counts the rows that are read, as "host".
    """

    def __init__(self, ids: Tensor, places: Tensor, pool: Tensor, limit: int, traffic: Traffic | None) -> None:
        self._ids, self._places, self._limit = ids, places, limit
        self._store: Any = TensorRows(pool, traffic=traffic)
        self._slots: tuple[IdIndex, Tensor] | None = None
        self._ended = False

    def __len__(self) -> int:
        """Exclusive upper bound of the ids: that of the store they come from."""
        return self._limit

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read rows of the batch. Arguments as for `FeatureStore.read`.

        Raises:
            IndexError: an id that is out of range or not of this batch.
            ValueError: the loop has gone on, so that other rows may be in these rows' place.
        """
        check_id_vector("ids", ids)
        if out is not None:
            check_rows("out", out, self, len(ids), on_device=True)
        if self._ended:
            raise ValueError(
                "the loop has gone on, and these rows may have been replaced; read them before the next batch is asked "
                "for, and don't pass read_ahead to wb.prefetch"
            )
        return self._store.read(self._slots_of(check_ids("ids", ids, len(self)).cpu()), out=out)

    def end(self) -> None:
        """Refuse further reads, and let go of the pool: a loop's last rows are still in its variable after it."""
        self._ended = True
        self._store = TensorRows(torch.empty(0, *self.row_shape, dtype=self.dtype, device=self.device))

    def _slots_of(self, ids: Tensor) -> Tensor:
        if torch.equal(ids, self._ids):  # the whole batch at once
            return self._places
        if self._slots is None:
            index = IdIndex([self._ids], self._limit)
            slots = torch.empty(len(index.ids), dtype=torch.int32)
            slots[index.positions(self._ids)] = self._places
            self._slots = index, slots
        index, slots = self._slots
        positions = index.positions(ids)
        missing = (positions < 0).nonzero()
        if len(missing):
            raise IndexError(
                f"row {int(ids[missing[0, 0]])} is not one of the {len(index.ids)} rows of this batch; read the rows "
                "of its node_ids"
            )
        return slots[positions]
