"""`plan_reading`: chooses how rows are read, from counts before the run: Belady's rule, packing or a buffer.

`read_by_page` tells the system how mapped graphs and rows are read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor

from workbench.core.errors import (
    CapacityError,
    check_at_least,
    check_bytes,
    check_finite,
    check_ids,
    check_tensors,
    check_type,
    check_vector,
)
from workbench.core.graph import Graph
from workbench.core.trace import AccessTrace
from workbench.core.units import format_bytes
from workbench.features.disk_rows import MAX_READ, read_cost
from workbench.kernels.buffers import read_singly
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_edges
from workbench.outofcore.bucket_order import node_order
from workbench.outofcore.row_plan import RowPlan, most_in_use, plan_rows
from workbench.outofcore.store_files import runs_of
from workbench.outofcore.store_layout import BLOCK, memory_of_slot, whole_blocks
from workbench.outofcore.tuning import DiskModel, buffer_bytes, loads_of

Method = Literal["belady", "packed", "buffer"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A way of reading the rows of a trace, and what the disk does for it.

    Args:
        method: "belady": `read_ahead` from `DiskRows`; "packed": from `PackedRows`; "buffer": a `PartitionBuffer`,
            whose batches are sampled from the partitions in memory, so that accuracy may differ from memory's.
        group: batches whose rows are read together; 0 for the buffer.
        num_partitions: partitions of the buffer; 0 for others.
        capacity: partitions in the buffer; 0 for others.
        buffer_bytes: memory of the buffer: rows, edges, and what it reads ahead of both; 0 for others.
        read_bytes: bytes read, whole blocks and gaps included, those of edges too for the buffer.
        num_reads: number of reads.
        written_bytes: bytes written: packed rows, divided by the number of times that they are read.
        seconds: time of the disk, modelled.
        first_seconds: of these, what passes before the first batch has its rows; the others may overlap with training.
    """

    method: Method
    group: int = 0
    num_partitions: int = 0
    capacity: int = 0
    buffer_bytes: int = 0
    read_bytes: int
    num_reads: int
    written_bytes: int = 0
    seconds: float
    first_seconds: float


@dataclass(frozen=True, kw_only=True)
class ReadingPlan:
    """The way of reading that a disk takes the least time for, and the others.

    Args:
        best: the fastest.
        others: all others that fit into memory, fastest first.
        memory_bytes: memory for rows, and for the edges of the buffer.
        counted_bytes: of these, the memory for rows that the counts suppose; the others are the margin.
        gap_bytes: for `DiskRows`: what the disk transfers in the time of another read.
        disk: the disk.
    """

    best: Reading
    others: tuple[Reading, ...]
    memory_bytes: int
    counted_bytes: int
    gap_bytes: int
    disk: DiskModel

    @property
    def choice(self) -> Mapping[str, Any]:
        """The method, and what it needs to know."""
        best, names = self.best, {"method": self.best.method}
        if best.method == "buffer":
            return {**names, "num_partitions": best.num_partitions, "capacity": best.capacity}
        return {**names, "group": best.group, "memory": self.memory_bytes, "gap_bytes": self.gap_bytes}

    @property
    def predicted(self) -> Mapping[str, float]:
        best = self.best
        found = {"read_bytes": best.read_bytes, "written_bytes": best.written_bytes, "reads": best.num_reads}
        return {**found, "epoch_seconds": best.seconds}

    @property
    def error(self) -> float | None:
        """0: bytes and reads are counted. None: they are those of a buffer, whose partitions are supposed to be of the
        same size, or they are counted beside a margin, with less memory than `choice` passes.
        """
        return 0.0 if self.best.method != "buffer" and self.counted_bytes == self.memory_bytes else None

    def code(self) -> str:
        """Lines that train on the batches of an epoch of `loader`, with the rows in the folder `features`.

        A buffer is of `graph`, and samples by itself; others may use the folder `packed`.
        """
        best, ahead = self.best, f"memory={self.memory_bytes}, group={self.best.group}"
        train = "    wb.train_step(model, mb, rows, y, loss_fn, optimizer)\n"
        disk = f"epoch, disk = loader.epoch(0), wb.DiskRows(features, gap_bytes={self.gap_bytes})\n"
        if best.method == "belady":
            return f"{disk}for _, mb, rows in wb.outofcore.read_ahead(epoch, disk, {ahead}):\n{train}"
        if best.method == "packed":
            pack = f"in_order = wb.outofcore.pack_rows(packed, epoch, disk, {ahead})\n"
            return f"{disk}{pack}for _, mb, rows in wb.outofcore.read_ahead(epoch, in_order, {ahead}):\n{train}"
        return (
            "store = wb.outofcore.PartitionStore.build(\n"
            f"    folder, graph, rows=x, train_idx=ids, num_partitions={best.num_partitions}\n)\n"
            f"sizes = {best.num_partitions}, {best.capacity}, store.num_train_partitions\n"
            f"with wb.outofcore.PartitionBuffer(store, capacity={best.capacity}) as buffer:\n"
            "    order = wb.outofcore.node_order(*sizes)\n"
            "    seeds = torch.isin(store.node_ids, ids).nonzero()[:, 0]\n"
            "    batches = wb.outofcore.batches(buffer, order, seeds, sampler=sampler, batch_size=batch_size)\n"
            "    for state, _, mb in batches:\n"
            "        wb.train_step(model, mb, state.rows, y[store.node_ids], loss_fn, optimizer)\n"
        )


def plan_reading(
    trace: AccessTrace,
    *,
    num_rows: int,
    row_bytes: int,
    memory: int | str,
    disk: DiskModel,
    groups: Sequence[int] = (1, 2, 4, 8, 16),
    margin: float = 0.0,
    num_epochs: int = 1,
    packed_uses: int = 1,
    num_edges: int | None = None,
    edge_bytes: int = 16,
    num_partitions: int = 64,
    num_train_partitions: int = 1,
    buckets: Tensor | None = None,
) -> ReadingPlan:
    """Choose between reading ahead by Belady's rule, packing, and a partition buffer, by the modelled time of the disk.

    Args:
        trace: the rows that each batch reads, in an epoch or several: `AccessTrace.of(mb.node_ids for _, mb in
            loader.epoch(0))`.
        num_rows: number of rows on disk.
        row_bytes: bytes of a row.
        memory: memory for rows, and for the edges of the buffer; that of the graph, from which all others
            sample, comes on top unless it is memory-mapped.
        disk: bandwidth, reads per second and block, given or `DiskModel.measured(folder)`.
        groups: numbers of batches whose rows may be read together, in any order; none: only a buffer is considered.
        margin: share of the memory for rows that is left to batches that read more than those of the trace, in [0, 1):
            rows are counted with the rest of the memory, unless all rows fit.
        num_epochs: epochs in the trace; each reads a buffer anew.
        packed_uses: number of times that the same samples are trained, and so the same packed rows are read.
        num_edges: number of edges; None: a buffer is not considered.
        edge_bytes: bytes of an edge in the buffer's buckets.
        num_partitions: partitions of the buffer, which is not considered if they are more than the rows.
        num_train_partitions: of these, the first, that have all training nodes.
        buckets: float64 [num_partitions, num_partitions], not negative, edges between partitions
            (`expected_buckets`); None: all of the same size.

    Returns:
        The plan. Bytes and reads of "belady" and "packed" are those of `DiskRows` with `gap_bytes`, counted; those of
        the buffer suppose partitions of the same size, and buckets as given.

    Raises:
        TypeError: an argument of another type.
        ValueError: a number out of range, or neither groups nor a buffer to choose from.
        IndexError: the trace has an id that is not below `num_rows`.
        CapacityError: nothing fits into memory.
    """
    check_type("trace", trace, AccessTrace, "pass wb.AccessTrace.of(mb.node_ids for _, mb in loader.epoch(0))")
    check_type("disk", disk, DiskModel, "pass wb.outofcore.DiskModel(bytes_per_second=…, reads_per_second=…)")
    check_type("groups", groups, Sequence, "pass a list of numbers of batches")
    numbers = {
        "num_rows": num_rows,
        "row_bytes": row_bytes,
        "packed_uses": packed_uses,
        "num_epochs": num_epochs,
    }
    for name, number in numbers.items():
        check_at_least(name, number, 1)
    for group in groups:
        check_at_least("a group", group, 1)
    if not isinstance(margin, Real) or not 0 <= margin < 1:
        raise ValueError(f"margin is {margin!r}; it must be in [0, 1), such as 0.1 for 10 %")
    memory_bytes = check_bytes("memory", memory)
    partitions = None
    if num_edges is not None:
        sizes = num_edges, edge_bytes, num_partitions, num_train_partitions
        partitions = _Partitions(num_rows, row_bytes, *sizes, buckets)
        partitions = partitions if num_partitions <= num_rows else None  # as no store can have them
    if not groups and partitions is None:
        raise ValueError(
            "groups is empty, and no buffer is considered; pass numbers of batches, or num_edges and no more than "
            f"{num_rows} partitions, the number of rows"
        )
    holds_all = memory_bytes >= num_rows * row_bytes
    for_rows = memory_bytes if holds_all else _without(margin, memory_bytes)
    rows = _Rows(trace, num_rows, row_bytes, for_rows, disk.block_bytes, min(disk.read_bytes, MAX_READ))
    found, reasons, too_large = list[Reading](), list[str](), list[int]()
    for group in sorted(set(groups)):
        if any(group % other == 0 for other in too_large):  # what two of these read is read by two of those
            continue
        try:
            plan = rows.plan(group)
        except CapacityError as error:
            reasons.append(str(error))
            too_large.append(group)
            continue
        packed = [] if found else [_packed(rows, plan, group, disk, packed_uses)]
        found += [_belady(rows, plan, group, disk), *packed]
    if partitions is not None and memory_bytes >= partitions.needed:
        found.append(_buffer(partitions, num_epochs=num_epochs, memory_bytes=memory_bytes, disk=disk))
    if not found:
        needed = [] if partitions is None else [partitions.needed]
        if groups:
            needed.append(min(num_rows * row_bytes, _beside(margin, rows.needed(min(groups)))))
        reason = "; ".join(reasons) or "two partitions of a buffer and their edges take more"
        other = "lower batch_size" if groups else "pass more partitions"
        raise CapacityError(
            f"nothing fits into {format_bytes(memory_bytes)}: {reason}. Raise memory to {min(needed)}, or {other}"
        )
    best, *others = sorted(found, key=lambda reading: reading.seconds)
    nbytes = {"memory_bytes": memory_bytes, "counted_bytes": for_rows, "gap_bytes": rows.gap}
    return ReadingPlan(best=best, others=tuple(others), **nbytes, disk=disk)


def _without(margin: float, memory: int) -> int:
    """What is left of some memory without the margin."""
    return int(memory * (1 - margin))


def _beside(margin: float, needed: int) -> int:
    """Memory that has as much beside the margin as is needed, in the same rounding."""
    memory = ceil(needed / (1 - margin))
    while _without(margin, memory) < needed:
        memory += 1
    return memory


@dataclass(frozen=True)
class _Rows:
    """What the batches of an epoch read, and the file that it is in."""

    trace: AccessTrace
    num_rows: int
    row_bytes: int
    memory: int
    block: int
    gap: int

    @property
    def capacity(self) -> int:
        return min(self.memory // self.row_bytes, self.num_rows)

    def grouped(self, group: int) -> AccessTrace:
        offsets = self.trace.offsets
        return AccessTrace(self.trace.ids, torch.cat([offsets[:-1:group], offsets[-1:]]))

    def plan(self, group: int) -> RowPlan:
        if not self.capacity:
            raise CapacityError(f"a row has {self.row_bytes} bytes")
        return plan_rows(self.grouped(group), self.capacity, num_rows=self.num_rows)

    def needed(self, group: int) -> int:
        """Memory of the rows of two groups, one after the other, at most."""
        return self.row_bytes * max(1, most_in_use(self.grouped(group)))

    def cost(self, reads: Iterable[Tensor], num_rows: int) -> tuple[int, int]:
        """Bytes and reads of some calls on a file of that many rows."""
        size = {"block": self.block, "max_gap": self.gap, "file_bytes": num_rows * self.row_bytes}
        costs = [read_cost(ids, self.row_bytes, **size) for ids in reads]
        return sum(nbytes for nbytes, _ in costs), sum(count for _, count in costs)


def _belady(rows: _Rows, plan: RowPlan, group: int, disk: DiskModel) -> Reading:
    reads = [ids for ids, _ in plan.reads()]
    nbytes, count = rows.cost(reads, rows.num_rows)
    return Reading(
        method="belady",
        group=group,
        read_bytes=nbytes,
        num_reads=count,
        seconds=disk.seconds(nbytes, count),
        first_seconds=disk.seconds(*rows.cost(reads[:1], rows.num_rows)),
    )


def _packed(rows: _Rows, plan: RowPlan, group: int, disk: DiskModel, uses: int) -> Reading:
    """Rows are read from their file in pieces of the memory, written, and read in their order of use."""
    stretches = torch.arange(plan.num_rows).split(plan.offsets.diff().tolist())
    nbytes, count = rows.cost(stretches, plan.num_rows)
    begin, begins = rows.cost(stretches[:1], plan.num_rows)
    first, before = rows.cost(plan.ids.split(rows.capacity), rows.num_rows)
    written = ceil(plan.num_rows * rows.row_bytes / uses)
    read, reads = nbytes + ceil(first / uses), count + ceil(before / uses)
    return Reading(
        method="packed",
        group=group,
        read_bytes=read,
        num_reads=reads,
        written_bytes=written,
        seconds=disk.seconds(read, reads, written),
        first_seconds=disk.seconds(read - nbytes + begin, reads - count + begins, written),
    )


def expected_buckets(graph: Graph, train_idx: Tensor, num_partitions: int) -> Tensor:
    """Expected edges between the partitions of a store: training nodes come first, and all are in random order.

    Args:
        graph: of the store.
        train_idx: integer, training nodes, each once.
        num_partitions: p.

    Returns:
        float64 [p, p], by the partitions of source and destination; it adds up to the number of edges.

    Raises:
        TypeError: `train_idx` are no integers.
        ValueError: repeated training nodes, or `num_partitions` is not from 1 to the number of nodes.
        IndexError: a training node out of range.
    """
    train_idx = check_ids("train_idx", train_idx, graph.num_nodes, unique=True).cpu()
    check_at_least("num_partitions", num_partitions, 1, most=max(1, graph.num_nodes))
    size, num_train = graph.num_nodes, len(train_idx)
    is_train = torch.zeros(size, dtype=torch.bool)
    is_train[train_idx] = True
    indptr, from_train = graph.indptr.cpu(), torch.empty(size, dtype=torch.int64)
    arrays = (one.numpy() for one in (indptr, graph.indices.cpu(), is_train, from_train))
    parallel_edges(partial(_count_sources, *arrays), indptr)
    degrees, train = torch.stack([indptr.diff(), from_train]), train_idx.long()
    to_all, to_train = degrees.sum(1), degrees[:, train].sum(1)
    edges = torch.stack([to_all - to_train, to_train], 1).double()
    edges[0] -= edges[1]  # from others, and from training nodes
    ends = (torch.arange(num_partitions + 1) * ceil(size / num_partitions)).clamp(max=size)
    of_train = ends.clamp(max=num_train).diff()
    nodes = torch.stack([ends.diff() - of_train, of_train]).double()
    share = nodes / nodes.sum(1, keepdim=True).clamp(min=1)
    return share.T @ edges @ share


@compiled
def _count_sources(indptr, indices, chosen, counts, lo, hi):
    """Count the chosen in-neighbours of some rows."""
    for row in range(lo, hi):
        count = 0
        for edge in range(indptr[row], indptr[row + 1]):
            count += chosen[indices[edge]]
        counts[row] = count


@dataclass(frozen=True, eq=False)
class _Partitions:
    """Rows and edges in partitions of the same size. Arguments as for `plan_reading`, which are checked."""

    num_rows: int
    row_bytes: int
    num_edges: int
    edge_bytes: int
    num_partitions: int
    num_train: int
    buckets: Tensor | None

    def __post_init__(self) -> None:
        for name, number in {"num_edges": self.num_edges, "edge_bytes": self.edge_bytes}.items():
            check_at_least(name, number, 0)
        check_at_least("num_partitions", self.num_partitions, 2)
        check_at_least("num_train_partitions", self.num_train, 1, most=self.num_partitions)
        if self.buckets is not None:
            check_tensors(buckets=self.buckets)
            check_vector("buckets", self.buckets.flatten(), self.num_partitions**2, (torch.float64,))
            check_finite("buckets", self.buckets)
            if (least := float(self.buckets.min())) < 0:
                raise ValueError(f"buckets contains {least}; numbers of edges can't be negative (expected_buckets)")

    @property
    def partition_bytes(self) -> int:
        return whole_blocks(ceil(self.num_rows / self.num_partitions) * self.row_bytes)

    @property
    def bucket_bytes(self) -> float:
        return self.num_edges * self.edge_bytes / self.num_partitions**2

    def memory(self, capacity: int) -> int:
        """Memory of a buffer of some partitions; a state adds one if those with training nodes are more."""
        slot_bytes = memory_of_slot(self.partition_bytes, self.row_bytes)
        return buffer_bytes(capacity, slot_bytes, self.bucket_bytes, int(self.num_train > capacity))

    @property
    def needed(self) -> int:
        """Memory of the smallest buffer."""
        return self.memory(2)


def _buffer(parts: _Partitions, *, num_epochs: int, memory_bytes: int, disk: DiskModel) -> Reading:
    """The largest buffer that fits into memory, in MariusGNN's order; the smallest does."""
    num_edges, num_partitions, buckets = parts.num_edges, parts.num_partitions, parts.buckets
    partition, bucket = parts.partition_bytes, parts.bucket_bytes
    capacity = max(c for c in range(2, num_partitions + 1) if parts.memory(c) <= memory_bytes)
    states = node_order(num_partitions, capacity, parts.num_train).states
    loaded = loads_of(states)
    runs = [run for new, held in zip(loaded, states, strict=True) for run in runs_of(new, held, num_partitions)]
    loads = sum(map(len, loaded))
    ends = torch.arange(num_partitions**2 + 1) * bucket
    if buckets is not None:
        ends = torch.cat([buckets.new_zeros(1), buckets.flatten().cumsum(0)]) * parts.edge_bytes
    at = ends.tolist()
    of_edges = [
        whole_blocks(ceil(at[last])) - int(at[first]) // BLOCK * BLOCK if num_edges and at[last] > at[first] else 0
        for first, last in runs
    ]
    nbytes = num_epochs * (loads * partition + sum(of_edges))
    count = num_epochs * (loads + sum(map(bool, of_edges)))  # runs without edges are not read
    first = of_edges[: len(runs_of(loaded[0], states[0], num_partitions))]
    begin = len(loaded[0]) * partition + sum(first), len(loaded[0]) + sum(map(bool, first))
    return Reading(
        method="buffer",
        num_partitions=num_partitions,
        capacity=capacity,
        buffer_bytes=parts.memory(capacity),
        read_bytes=nbytes,
        num_reads=count,
        seconds=disk.seconds(nbytes, count),
        first_seconds=num_epochs * disk.seconds(*begin),
    )


def read_by_page(*mapped: Graph | Tensor) -> None:
    """Let the system read memory-mapped graphs and arrays a page at a time, as samples touch them.

    By default it also reads the pages around each one that is not in memory, as many as the disk's `read_ahead_kb`
    says. That is faster if all is read once; if memory is short, they displace pages that are needed again.

    Args:
        mapped: graphs of `Graph.open`, and tensors that are mapped; others stay as they are.

    Raises:
        TypeError: something else.

    >>> import tempfile, workbench as wb
    >>> wb.Graph.from_edges([0, 1], [1, 0]).save(folder := f"{tempfile.mkdtemp()}/graph")
    >>> read_by_page(graph := wb.Graph.open(folder))
    """
    for one in mapped:
        check_type("mapped", one, (Graph, Tensor), "pass a graph of Graph.open, or a tensor")
        for tensor in one._tensors().values() if isinstance(one, Graph) else [one]:
            if tensor is not None and tensor.device.type == "cpu":
                read_singly(tensor)
