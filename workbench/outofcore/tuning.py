"""Automatic tuning of a partition buffer: how many partitions, how many in the buffer, how many logical groups.

Partitions are as small as one disk read allows, because the edge permutation bias falls with their number; the buffer
is as large as memory allows, because fewer logical groups are loaded fewer times.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice, pairwise
from math import ceil, isqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch

from workbench.core.errors import CapacityError, check_at_least, check_bytes, check_choice
from workbench.core.randomness import permutation
from workbench.core.units import format_bytes
from workbench.features.direct_file import DirectFile, run_waiting
from workbench.files import write_new_file
from workbench.outofcore.bucket_order import BucketOrder, balanced_order, comet_order
from workbench.outofcore.partition_store import PartitionStore
from workbench.outofcore.store_files import EdgeBuckets
from workbench.outofcore.store_layout import memory_of_slot, whole_blocks

Limit = Literal["rows", "edges", "max_partitions", "memory"]

_EDGE_COPIES = 2  # the buckets as they are on disk, and sorted for sampling

_METHODS = ("COMET", "balanced")


@dataclass(frozen=True, kw_only=True)
class BufferPlan:
    """Settings of a partition buffer, and the bytes that an epoch over all edge buckets moves with them.

    Args:
        num_partitions: number p of physical partitions, a multiple of `num_logical`.
        capacity: number c of partitions in the buffer: two logical groups, or all.
        num_logical: number l of logical groups; 1 if everything fits into memory.
        partition_bytes: bytes of a partition's rows, with their optimizer state if they are learnt, in whole pages.
        slot_bytes: memory of a partition in the buffer, in whole pages and rows.
        bucket_bytes: bytes of an edge bucket, on average.
        working_bytes: memory beside the buffer.
        learnt: rows are learnt: their partitions are written back when they leave the buffer.
        prefetch: the buffer reads the next state's partitions during each state.
        limit: what keeps `num_partitions` from being larger: a partition of "rows" or a bucket of "edges" would be
            smaller than one disk read, or "max_partitions". "memory": only partitions smaller than one disk read
            fit.
        method: of the order, "COMET" or "balanced".
    """

    num_partitions: int
    capacity: int
    num_logical: int
    partition_bytes: int
    slot_bytes: int
    bucket_bytes: float
    working_bytes: int
    learnt: bool
    prefetch: bool
    limit: Limit
    method: str

    @property
    def in_memory(self) -> bool:
        """Whether the buffer holds all partitions."""
        return self.capacity == self.num_partitions

    @property
    def peak_bytes(self) -> int:
        """Memory used: the partitions in the buffer, their buckets twice (as stored and sorted), what is read ahead of
        both, and the rest.
        """
        ahead = _ahead(self.num_logical, self.num_partitions, self.prefetch)
        return buffer_bytes(self.capacity, self.slot_bytes, self.bucket_bytes, ahead) + self.working_bytes

    @property
    def num_loads(self) -> int:
        """Partitions read per epoch."""
        return self._group_loads * (self.num_partitions // self.num_logical)

    @property
    def num_bucket_loads(self) -> int:
        """Edge buckets read per epoch: those of a group that joins another, within it and between both."""
        return (self.num_partitions // self.num_logical) ** 2 * (3 * self._group_loads - 2)

    @property
    def read_bytes(self) -> int:
        """Bytes read per epoch."""
        return self.num_loads * self.partition_bytes + round(self.num_bucket_loads * self.bucket_bytes)

    @property
    def write_bytes(self) -> int:
        """Bytes written per epoch."""
        return self.num_loads * self.partition_bytes if self.learnt else 0

    @property
    def num_operations(self) -> int:
        """Reads and writes per epoch, of whole partitions and single buckets."""
        return self.num_loads * (2 if self.learnt else 1) + self.num_bucket_loads

    @property
    def _group_loads(self) -> int:
        """A state per pair of groups, each one group from the last."""
        return self.num_logical * (self.num_logical - 1) // 2 + 1

    @property
    def choice(self) -> Mapping[str, Any]:
        return {"num_partitions": self.num_partitions, "capacity": self.capacity, "num_logical": self.num_logical}

    @property
    def predicted(self) -> Mapping[str, float]:
        found = {"peak_bytes": self.peak_bytes, "read_bytes": self.read_bytes, "written_bytes": self.write_bytes}
        return {**found, "operations": self.num_operations}

    @property
    def error(self) -> float | None:
        """Not known: partitions and buckets are supposed to be of the same size."""
        return None

    def code(self) -> str:
        """Lines that go through an epoch of `graph` with the rows `x`, on disk in `folder`, by this plan, `plan`."""
        options = f"capacity={self.capacity}" + ("" if self.prefetch or self.in_memory else ", prefetch=False")
        return (
            f"store = wb.outofcore.PartitionStore.build(folder, graph, rows=x, num_partitions={self.num_partitions})\n"
            f"with wb.outofcore.PartitionBuffer(store, {options}) as buffer:\n"
            "    for state in buffer.epoch(plan.order(epoch=0)):\n"
            "        ...\n"
        )

    def order(self, *, seed: int = 0, epoch: int = 0) -> BucketOrder:
        """The order of an epoch with these settings.

        Args:
            seed: of groups and of the buckets' states.
            epoch: number of the epoch.
        """
        made = balanced_order if self.method == "balanced" else comet_order
        return made(self.num_partitions, self.capacity, self.num_logical, seed=seed, epoch=epoch)


def plan_buffer(
    num_nodes: int,
    row_bytes: int,
    *,
    num_edges: int,
    edge_bytes: int,
    memory: int | str,
    working_bytes: int | str = 0,
    disk_read_bytes: int | str = "62.5 kB",
    learnt: bool = False,
    state_bytes: int | None = None,
    method: str = "COMET",
    max_partitions: int = 1024,
    prefetch: bool = True,
) -> BufferPlan:
    """Choose the partitions p, the capacity c and the logical groups l of a buffer that fits into memory.

    The fewest logical groups of which two fit, because an epoch reads the features about (l − 1) / 2 times; then the
    most partitions of which none is smaller than one disk read.

    Args:
        num_nodes: number of nodes.
        row_bytes: bytes of a node's features or learnt values.
        num_edges: number of edges.
        edge_bytes: bytes of an edge on disk: 16 for two int64 ids, 24 with a relation.
        memory: memory available, such as "16 GiB".
        working_bytes: memory needed beside the buffer: `peak_bytes` of `estimate_memory`.
        disk_read_bytes: size D of a read above which the disk's time is bandwidth, not latency: bandwidth divided by
            reads per second, by default of a disk of 1 GB/s and 16,000 reads per second.
        learnt: rows are learnt, so each has an optimizer state, and partitions are written back.
        state_bytes: bytes of a learnt row's state; None: `row_bytes`. Rows in half precision have a state in float32:
            pass 2 · `row_bytes`.
        method: "COMET"; or "balanced", which takes an odd number of groups, for which the bias of `balanced_order` is
            least.
        max_partitions: upper bound of p; orders have p² entries.
        prefetch: count the memory of the partitions and buckets that `PartitionBuffer` reads during a state for the
            next one, half as many as are in the buffer. The paper doesn't count them; False needs a buffer with
            `prefetch=False`.

    Raises:
        ValueError: a number out of range.
        CapacityError: no buffer fits; the message says how much the smallest needs.

    Source: Waleffe et al., "MariusGNN" (EuroSys 2023), section 6: p = min(features / D, √(edges / D)), the largest c
    with c · partition + 2 c² · bucket + working memory < memory, and l = 2 p / c.

    >>> plan = plan_buffer(10**6, 400, num_edges=10**7, edge_bytes=16, memory="200 MiB", working_bytes="50 MiB")
    >>> plan.num_partitions, plan.capacity, plan.num_logical
    (45, 10, 9)
    """
    for name, value in {"num_nodes": num_nodes, "row_bytes": row_bytes, "max_partitions": max_partitions}.items():
        check_at_least(name, value, 1)
    check_at_least("num_edges", num_edges, 0)
    check_at_least("edge_bytes", edge_bytes, 1)
    check_choice("method", method, _METHODS)
    memory_bytes, working = check_bytes("memory", memory), check_bytes("working_bytes", working_bytes, 0)
    if state_bytes is not None:
        check_at_least("state_bytes", state_bytes, 1)
        if not learnt:
            raise ValueError(f"state_bytes is {state_bytes}, but only learnt rows have a state; pass learnt=True")
    state = (row_bytes if state_bytes is None else state_bytes) if learnt else 0
    of_rows = (row_bytes, state) if learnt else (row_bytes,)
    sizes = _Sizes(num_nodes, of_rows, num_edges * edge_bytes, working, prefetch)
    wanted, limit = sizes.most_partitions(check_bytes("disk_read_bytes", disk_read_bytes), max_partitions)
    settings = list(_settings(wanted, min(max_partitions, num_nodes), odd=method == "balanced"))
    for num_logical, p in settings:
        if sizes.memory(num_logical, p) <= memory_bytes:
            return BufferPlan(
                num_partitions=p,
                capacity=_capacity(num_logical, p),
                num_logical=num_logical,
                partition_bytes=sizes.partition_bytes(p),
                slot_bytes=sizes.slot_bytes(p),
                bucket_bytes=sizes.edges_bytes / p**2,
                working_bytes=working,
                learnt=learnt,
                prefetch=prefetch,
                limit="memory" if p > wanted else limit,
                method=method,
            )
    raise CapacityError(_nothing_fits(sizes, settings, memory_bytes, working))


@dataclass(frozen=True)
class _Sizes:
    """Bytes on disk, and beside the buffer."""

    num_nodes: int
    row_bytes: tuple[int, ...]
    edges_bytes: int
    working_bytes: int
    prefetch: bool

    @property
    def record_bytes(self) -> int:
        return sum(self.row_bytes)

    def partition_bytes(self, p: int) -> int:
        return whole_blocks(ceil(self.num_nodes / p) * self.record_bytes)

    def slot_bytes(self, p: int) -> int:
        return memory_of_slot(self.partition_bytes(p), *self.row_bytes)

    def memory(self, num_logical: int, p: int) -> int:
        """Memory with two groups in the buffer."""
        sizes = self.slot_bytes(p), self.edges_bytes / p**2
        return (
            buffer_bytes(_capacity(num_logical, p), *sizes, _ahead(num_logical, p, self.prefetch)) + self.working_bytes
        )

    def most_partitions(self, disk_read_bytes: int, max_partitions: int) -> tuple[int, Limit]:
        """The largest p whose partitions and buckets are at least one disk read, and what limits it."""
        limits: dict[Limit, int] = {"rows": self.num_nodes * self.record_bytes // disk_read_bytes}
        limits["max_partitions"] = min(max_partitions, self.num_nodes)
        if self.edges_bytes:
            limits["edges"] = isqrt(self.edges_bytes // disk_read_bytes)
        least = min(limits, key=lambda name: limits[name])
        return max(1, limits[least]), least


def buffer_bytes(capacity: int, slot_bytes: int, bucket_bytes: float, ahead: int) -> int:
    """Memory of the partitions in a buffer and of their buckets, which it has twice: as stored, and sorted.

    Args:
        capacity: number of partitions in the buffer.
        slot_bytes: memory of a partition.
        bucket_bytes: bytes of an edge bucket, on average.
        ahead: partitions that are read for the next state, with their buckets, while all of these are in memory.
    """
    buckets = _EDGE_COPIES * capacity**2 + ahead * (2 * capacity - ahead)
    return ceil((capacity + ahead) * slot_bytes + buckets * bucket_bytes)


def _ahead(num_logical: int, p: int, prefetch: bool) -> int:
    """Partitions that a state adds to the last one: a logical group."""
    return p // num_logical if prefetch and num_logical > 1 else 0


def _capacity(num_logical: int, p: int) -> int:
    return p if num_logical == 1 else 2 * p // num_logical


def _settings(wanted: int, most: int, *, odd: bool) -> Iterator[tuple[int, int]]:
    """Numbers of groups and partitions in order of preference: few groups, then many partitions, of one disk read."""
    for num_logical in (1, *range(3, most + 1, 2 if odd else 1)):  # two groups are all
        for size in range(max(1, wanted // num_logical), 0, -1):
            yield num_logical, num_logical * size


def _nothing_fits(sizes: _Sizes, settings: list[tuple[int, int]], memory: int, working: int) -> str:
    num_logical, p = min(settings, key=lambda setting: sizes.memory(*setting))
    needed = sizes.memory(num_logical, p)
    return (
        f"no buffer fits into {format_bytes(memory)}: the smallest, {_capacity(num_logical, p)} of {p} partitions, "
        f"needs {format_bytes(needed)}, of which {format_bytes(working)} are working memory; raise memory to "
        f"{needed}, lower working_bytes with smaller batches (or micro-batches), or raise max_partitions"
    )


@dataclass(frozen=True)
class EpochIO:
    """What moves between disk and buffer, padding included.

    Args:
        loads: partitions that are read.
        row_bytes: bytes read of their rows, and of the state of learnt ones.
        edge_bytes: bytes read of edge buckets.
        written_bytes: bytes of partitions written back.
    """

    loads: int = 0
    row_bytes: int = 0
    edge_bytes: int = 0
    written_bytes: int = 0

    @property
    def read_bytes(self) -> int:
        return self.row_bytes + self.edge_bytes

    def __add__(self, other: "EpochIO") -> "EpochIO":
        return EpochIO(
            self.loads + other.loads,
            self.row_bytes + other.row_bytes,
            self.edge_bytes + other.edge_bytes,
            self.written_bytes + other.written_bytes,
        )


def epoch_io(store: PartitionStore, order: Any) -> EpochIO:
    """Predict what an epoch moves.

    Args:
        store: the store.
        order: `BucketOrder` or `NodeOrder` over its partitions.

    Returns:
        The prediction. It supposes that every partition of learnt rows changes while it is in the buffer; each is
        written when it leaves. The table that a write replaces, of some bytes per partition, is not counted.

    Raises:
        ValueError: an order over another number of partitions, or the store was rebuilt since it was opened.
    """
    check_order(store, order)
    buckets = EdgeBuckets(store.open_folder(), store.layout, store.bucket_edges, store.bucket_checksums, direct=False)
    edge_bytes, loads = 0, 0
    for loaded, held in zip(loads_of(order.states), order.states, strict=True):
        loads += len(loaded)
        edge_bytes += sum(buckets.run_bytes(run) for run in buckets.runs(loaded, held))
    nbytes = loads * store.partition_bytes
    return EpochIO(loads, nbytes, edge_bytes, nbytes if store.learnt else 0)


def loads_of(states: torch.Tensor) -> Sequence[torch.Tensor]:
    """Partitions that every state adds to the one before; all of the first state's."""
    new = [states[0]] if len(states) else []
    return new + [after[~torch.isin(after, before)] for before, after in pairwise(states)]


def check_order(store: PartitionStore, order: Any) -> None:
    """Check that an order is one of the store's partitions."""
    if not hasattr(order, "states"):
        raise TypeError(f"order is a {type(order).__name__}; pass a BucketOrder or a NodeOrder")
    p = getattr(order, "num_partitions", None)
    largest = int(order.states.max()) + 1 if order.states.numel() else 0
    if largest > store.num_partitions or p not in (None, store.num_partitions):
        raise ValueError(
            f"the order has {p or largest} partitions, but the store has {store.num_partitions}; make the order with "
            "the store's num_partitions, or build the store with that of the order"
        )


@dataclass(frozen=True)
class DiskModel:
    """A disk whose every operation takes a fixed time, and every byte another.

    Args:
        bytes_per_second: bandwidth of long reads and writes.
        reads_per_second: small random reads or writes per second.
        block_bytes: reads begin and end at multiples of it (`DiskRows.block_bytes`).
        write_bytes_per_second: of new files that are synced; None: as of long reads.

    Raises:
        ValueError: a number that is not positive.

    >>> disk = DiskModel(bytes_per_second=1e9, reads_per_second=10_000)
    >>> disk.read_bytes, disk.seconds(2_000_000_000, 5_000)
    (100000, 2.5)
    """

    bytes_per_second: float
    reads_per_second: float
    block_bytes: int = 4096
    write_bytes_per_second: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} is {value!r}; it must be positive and finite")

    @classmethod
    def measured(
        cls, folder: str | os.PathLike[str], *, file_bytes: int | str = "256 MiB", threads: int = 16
    ) -> "DiskModel":
        """Measure the disk of a folder: writing a temporary file, and direct reads of it.

        Neither the cache of a disk nor that of a virtual machine's host can be emptied, so reads of what was just
        written may be faster than others.

        Args:
            folder: an existing folder on the disk.
            file_bytes: size of the file, at least 1 MiB: it is written with its checksum and synced, as all files of
                the workbench, read once in reads of 1 MiB, and a quarter of it (at most 64 MiB) in blocks of 4 KiB at
                random places.
            threads: reads that the disk works on at the same time.

        Raises:
            OSError: the folder does not exist or can't be written, or the disk is full.
            ValueError: a number out of range.
        """
        size = check_bytes("file_bytes", file_bytes, _LONG_READ) // _LONG_READ * _LONG_READ
        check_at_least("threads", threads, 1)
        with TemporaryDirectory(dir=folder, prefix=".workbench-disk-") as name:
            path, chunks = Path(name) / "file", [os.urandom(_LONG_READ) for _ in range(_CHUNKS)]
            start = time.perf_counter()
            write_new_file(path, islice(cycle(chunks), size // _LONG_READ))
            writing = time.perf_counter() - start
            file = DirectFile(path, direct="auto")
            file.forget_cached()
            long = _read_seconds(file, range(0, size, _LONG_READ), _LONG_READ, threads)
            file.forget_cached()
            count = max(1, min(size // 4, 1 << 26) // _SHORT_READ)
            places = permutation(0, size // _SHORT_READ)[:count] * _SHORT_READ
            short = _read_seconds(file, places.tolist(), _SHORT_READ, threads)
            block = file.block
            del file  # its descriptor is closed before the file is deleted
        return cls(size / long, count / short, block, write_bytes_per_second=size / writing)

    @property
    def read_bytes(self) -> int:
        """Size of a read that takes as long to find as to transfer: shorter ones waste the disk's time."""
        return max(1, round(self.bytes_per_second / self.reads_per_second))

    def seconds(self, num_bytes: float, num_reads: float, written_bytes: float = 0) -> float:
        """Modelled seconds of reads one after the other, and of writing new files.

        Args:
            num_bytes: total size of the reads.
            num_reads: their number.
            written_bytes: total size of the files.
        """
        written_seconds = written_bytes / (self.write_bytes_per_second or self.bytes_per_second)
        return num_bytes / self.bytes_per_second + num_reads / self.reads_per_second + written_seconds


_LONG_READ, _SHORT_READ = 1 << 20, 4096

_CHUNKS = 16
"""MiB of random bytes that a file repeats: to draw all of them may take longer than to write them."""


def _read_seconds(file: DirectFile, places: Sequence[int], nbytes: int, threads: int) -> float:
    """Seconds of reads at some places, each of the same size."""
    threads, depth = file.threads_for(threads)

    def read(some: Sequence[int]) -> None:
        offsets = np.array(some)
        with file.buffer(2 * depth * nbytes) as buffer:
            file.read_all(buffer, np.arange(len(some)) * nbytes, offsets, np.full(len(some), nbytes), depth)

    pieces = [places[first : first + 2 * depth] for first in range(0, len(places), 2 * depth)]
    read(places[:1])  # compiles
    start = time.perf_counter()
    run_waiting([partial(read, piece) for piece in pieces], threads)
    return time.perf_counter() - start
