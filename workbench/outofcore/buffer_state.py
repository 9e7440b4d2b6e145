"""`BufferState`: what a partition buffer shows between two moves: its graph, rows and the edges to train."""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_id_vector, check_ids
from workbench.core.graph import Graph
from workbench.core.machine import Traffic
from workbench.core.minibatch import MiniBatch
from workbench.features.protocols import check_rows
from workbench.kernels.csr import index_dtype
from workbench.kernels.gather import as_integers, gather_rows
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_edges, run_tasks
from workbench.outofcore.bucket_order import BucketOrder
from workbench.outofcore.build_store import take_places
from workbench.outofcore.partition_store import PartitionStore
from workbench.outofcore.store_files import Bucket, block_aligned
from workbench.outofcore.store_layout import StoreLayout, memory_of_slot
from workbench.sampling.dense import DenseSampler
from workbench.sampling.labor import LaborSampler
from workbench.sampling.neighbor import NeighborSampler
from workbench.sampling.random_walk import RandomWalkSampler
from workbench.sampling.sampler import Sampler

Buckets = dict[tuple[int, int], Bucket]

_ANY_IDS = (DenseSampler, LaborSampler, NeighborSampler, RandomWalkSampler)


class SlotMemory:
    """Memory for some partitions; a slot is a whole number of blocks and of rows, so that all rows are one tensor.

    Args:
        layout: sizes of the store.
        num_slots: number of partitions.
    """

    def __init__(self, layout: StoreLayout, num_slots: int) -> None:
        self.layout, self.num_slots = layout, num_slots
        row_sizes = (layout.row_bytes, layout.state_row_bytes) if layout.learnt else (layout.row_bytes,)
        self.slot_bytes = memory_of_slot(layout.slot_bytes, *row_sizes)
        self._memory = block_aligned(self.slot_bytes * num_slots)

    def rows(self, *, state: bool) -> tuple[Tensor, int]:
        """The values of all slots as one tensor, or the states from the first on, and its rows per slot."""
        layout = self.layout
        dtype, row_bytes = (
            (layout.state_dtype, layout.state_row_bytes) if state else (layout.torch_dtype, layout.row_bytes)
        )
        rows = self._memory.view(dtype).view(-1, *layout.row_shape)
        return rows[layout.first_state_row if state else 0 :], self.slot_bytes // row_bytes

    def record(self, slot: int) -> Tensor:
        """The record of a slot, uint8, with its padding."""
        begin = slot * self.slot_bytes
        return self._memory[begin : begin + self.layout.slot_bytes]


class BufferRows:
    """Values, or optimizer state, of the nodes in one state of a buffer.

    A feature store for `workbench.train_step` while the state lasts; those of learnt rows can be written. Ids of other
    partitions are an error: what `state.sample` draws is in the buffer.

    Args:
        memory: of the buffer.
        slots: int64 [p], slot of every partition; −1: not in the buffer.
        changed: bool [p], set where a partition is written to; None: rows are only read.
        traffic: counts the rows that are read, as "host".
        state: the rows are the optimizer's state, not the values.
    """

    device = torch.device("cpu")

    def __init__(
        self,
        memory: SlotMemory,
        slots: Tensor,
        changed: Tensor | None,
        *,
        traffic: Traffic | None = None,
        state: bool = False,
    ) -> None:
        self._memory, self._slots, self._changed, self._traffic = memory, slots, changed, traffic
        self._process, self._ended = os.getpid(), False
        self._rows, self._slot_rows = memory.rows(state=state)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self._memory.layout.row_shape

    @property
    def dtype(self) -> torch.dtype:
        return self._rows.dtype

    def __len__(self) -> int:
        """Number of nodes of the store: the exclusive upper bound of the ids."""
        return self._memory.layout.num_nodes

    def end(self) -> None:
        """Refuse further reads and writes: other partitions take the memory."""
        self._ended = True

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read rows. Arguments as for `FeatureStore.read`.

        Raises:
            IndexError: an id out of range, or of a partition that is not in the buffer.
            RuntimeError: the buffer has passed on to another state.
        """
        check_id_vector("ids", ids)
        if out is not None:
            check_rows("out", out, self, len(ids), on_device=True)
        positions, _ = self._positions(check_ids("ids", ids, len(self)))
        if self._traffic is not None:
            self._traffic.add("host", "rows", len(ids), len(ids) * self._rows[:1].nbytes)
        return gather_rows(self._rows, positions, out=out)

    def write(self, ids: Tensor, rows: Tensor) -> None:
        """Replace rows; they are written to disk when their partition leaves the buffer.

        Args:
            ids: int64 or int32 [n], each once, on any device.
            rows: [n, *row_shape] in the dtype of the store, on any device.

        Raises:
            IndexError: an id out of range, or of a partition that is not in the buffer.
            TypeError: rows of another dtype.
            ValueError: an id that occurs twice, rows of another shape, or rows that are only read: features, or a store
                that is not writable.
            RuntimeError: the buffer has passed on to another state, or this is a forked child.
        """
        ids = check_ids("ids", ids, len(self), unique=True)
        check_rows("rows", rows, self, len(ids))
        memory, positions = self.in_place(ids)
        memory.index_copy_(0, positions, rows.detach().cpu())

    def in_place(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Find rows that the caller is about to change: they will be written to disk.

        Args:
            ids: int64 or int32 [n], each once, on any device.

        Returns:
            The memory of the buffer, [any, *row_shape], and int64 [n], where the rows of the ids are in it.

        Raises:
            IndexError, ValueError, RuntimeError: as `write`.
        """
        if self._changed is None:
            if self._memory.layout.learnt:
                raise ValueError("the store is not writable, so its rows are only read; make it writable, or copy it")
            raise ValueError("these rows are features, which are only read; build the store with rows=LearntInit(…)")
        if os.getpid() != self._process:
            raise RuntimeError(
                f"rows are written by process {self._process}, which forked this one ({os.getpid()}), alone; write "
                "there, as what is written here would be lost"
            )
        positions, partitions = self._positions(check_ids("ids", ids, len(self)))
        self._changed[partitions] = True
        return self._rows, positions

    def _positions(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of the memory behind the first of this array, and partitions, of ids."""
        if self._ended:
            raise RuntimeError(
                "this state of the buffer has ended; use the rows of the state that the loop yielded last"
            )
        wanted = ids.cpu().long()
        positions, partitions = torch.empty_like(wanted), torch.empty_like(wanted)
        sizes = self._memory.layout.partition_rows, self._slot_rows
        at = _locate(wanted.numpy(), self._slots.numpy(), *sizes, positions.numpy(), partitions.numpy())
        if at >= 0:
            held = (self._slots >= 0).nonzero()[:, 0].tolist()
            raise IndexError(
                f"row {int(wanted[at])} is in partition {int(partitions[at])}, but the buffer has the partitions "
                f"{held}; sample by state.sample, which draws edges in the buffer"
            )
        return positions, partitions


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
        self.ids = CompactIds(store.layout, partitions)
        self._buckets: Buckets | None = buckets
        self._order, self._store, self._lock = order, store, threading.Lock()
        self._compact: Graph | None = None
        self._graph: Graph | None = None

    @property
    def compact_graph(self) -> Graph:
        """The edges in the buffer, by destination, in `ids`: as large as the buffer."""
        with self._lock:
            if self._compact is None:
                self._compact = buffer_graph(self.ids, self._buckets_here())
            return self._compact

    @property
    def graph(self) -> Graph:
        """The edges in the buffer, by destination, in ids of the store.

        It has offsets of all nodes; those of other partitions have no edges. `sample` needs less memory.
        """
        compact = self.compact_graph
        with self._lock:
            if self._graph is None:
                self._graph = in_store_ids(compact, self.ids)
            return self._graph

    def sample(self, sampler: Sampler, seeds: Tensor, **options: Any) -> MiniBatch:
        """Sample the batch of some seeds from the edges in the buffer.

        Memory is proportional to the buffer, not to all nodes, if `takes_any_ids(sampler)`.

        Args:
            sampler: the sampler.
            seeds: int64 or int32 [n], ids of the store, each once, of `partitions`.
            options: for the sampler: `step`, and `exclude_edges`, as ids of edges.

        Returns:
            The batch, in ids of the store.

        Raises:
            TypeError: seeds of another dtype.
            ValueError: duplicate seeds.
            IndexError: a seed of a partition that is not in the buffer.
            RuntimeError: the buffer has passed on to another state.
        """
        if not takes_any_ids(sampler):
            return sampler.sample(self.graph, seeds, **options)
        seeds = check_ids("seeds", seeds, self._store.num_nodes, unique=True)
        batch = sampler.sample(self.compact_graph, self.ids.of("seeds", seeds), **options)
        return replace(batch, node_ids=self.ids.to_store(batch.node_ids))

    def edges(self) -> Tensor:
        """The edges that this state trains, int64 [n, 2], or [n, 3] with types: source, destination, type.

        Raises:
            ValueError: the order is one of nodes.
        """
        size, parts, buckets = self._store.partition_rows, [], self._buckets_here()
        for i, j in self._trained():
            bucket = buckets[i, j]
            columns = [bucket.src.long() + i * size, bucket.dst.long() + j * size]
            columns += [] if bucket.edge_type is None else [bucket.edge_type.long()]
            parts.append(torch.stack(columns, 1))
        width = 2 if self._store.layout.edge_type is None else 3
        return torch.cat(parts) if parts else torch.empty(0, width, dtype=torch.int64)

    def edge_ids(self) -> Tensor:
        """Edge ids of `edges()`, int64 [n]."""
        buckets = self._buckets_here()
        parts = [buckets[pair].edge_ids for pair in self._trained()]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)

    def _trained(self) -> list[tuple[int, int]]:
        if not isinstance(self._order, BucketOrder):
            raise ValueError("the order assigns nodes to states, not edges; pass a BucketOrder, such as comet_order's")
        here = (self._order.state_of_bucket == self.number).nonzero().tolist()
        return [(i, j) for i, j in here]

    def _buckets_here(self) -> Buckets:
        if self._buckets is None:
            raise RuntimeError(
                "this state of the buffer has ended; use the graph and edges of the state that the loop yielded last"
            )
        return self._buckets

    def end(self) -> None:
        """Refuse the state's rows and edges from now on, and free the memory of its graph."""
        for rows in (self.rows, self.state_rows):
            if rows is not None:
                rows.end()
        with self._lock:
            self._buckets, self._compact, self._graph = None, None, None

    def __repr__(self) -> str:
        return f"BufferState({self.number}: partitions {self.partitions.tolist()})"


def takes_any_ids(sampler: Any) -> bool:
    """Whether a sampler draws from the same distribution however nodes are numbered.

    A sampler with `dependence` does not, as it recognizes nodes in the next batch; neither do those of other types, of
    which it is not known.
    """
    return type(sampler) in _ANY_IDS and sampler.dependence is None


@compiled
def _locate(ids, slots, partition_rows, slot_rows, positions, partitions):
    """Positions and partitions of ids; the place of the first one that is not in the buffer, or -1."""
    for k in range(len(ids)):
        partition = ids[k] // partition_rows
        partitions[k] = partition
        if slots[partition] < 0:
            return k
        positions[k] = slots[partition] * slot_rows + ids[k] - partition * partition_rows
    return -1


BucketsByPlace = Mapping[tuple[int, int], Bucket]
"""By (partition of the sources, partition of the destinations)."""

_FEW = 24  # elements that insertion sort takes less time for than a general sort


@dataclass(frozen=True, eq=False)
class CompactIds:
    """Positions of nodes among those of some partitions; with the first partitions, they are the ids of the store.

    Args:
        layout: sizes of the store.
        held: int64 [c], the partitions, ascending.

    >>> sizes = {"num_nodes": 6, "num_partitions": 3, "num_train": 0, "num_edges": 0}
    >>> layout = StoreLayout(**sizes, row_shape=(1,), dtype="float32", learnt=False)
    >>> ids = CompactIds(layout, torch.tensor([0, 2]))
    >>> ids.num_nodes, ids.of("ids", torch.tensor([5, 0])), ids.to_store(torch.tensor([3, 0]))
    (4, tensor([3, 0]), tensor([5, 0]))
    """

    layout: StoreLayout
    held: Tensor

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the partitions."""
        return sum(self.layout.nodes_of(partition) for partition in self.held.tolist())

    def of(self, name: str, ids: Tensor) -> Tensor:
        """Number nodes of the partitions without gaps: int64 [n], below `num_nodes`.

        Args:
            ids: int64 or int32 [n], ids of the store.
        """
        wanted = check_ids(name, ids, self.layout.num_nodes).cpu().numpy()
        size, held = self.layout.partition_rows, self.held.numpy()
        partitions = wanted // size
        slots = np.minimum(np.searchsorted(held, partitions), len(held) - 1)
        outside = np.flatnonzero(held[slots] != partitions)
        if len(outside):
            at = int(outside[0])
            raise IndexError(
                f"{name} contains {wanted[at]} of partition {partitions[at]}, but the buffer has the partitions "
                f"{held.tolist()}; sample for nodes of state.partitions"
            )
        return torch.from_numpy(wanted - (partitions - slots) * size)

    def to_store(self, ids: Tensor) -> Tensor:
        """Return the ids of the store: the inverse of `of`.

        Args:
            ids: int64 [n], below `num_nodes`.
        """
        size, held = self.layout.partition_rows, self.held.numpy()
        shift = (held - np.arange(len(held))) * size
        if not shift.any():
            return ids
        compact = ids.numpy()
        return torch.from_numpy(compact + shift[compact // size])


@dataclass(frozen=True, eq=False, repr=False)
class BufferGraph(Graph):
    """A graph in ids of the store that has the rows of some partitions alone; to sample for other nodes is an error.

    Args:
        ids: numbers of the nodes in the buffer.
    """

    ids: CompactIds = field(kw_only=True)

    def check_rows(self, name: str, nodes: Tensor) -> None:
        """Check that all nodes are of partitions in the buffer.

        Args:
            nodes: int64 [n], ids of the store.

        Raises:
            IndexError: one is not; the message names its partition.
        """
        self.ids.of(name, nodes)


def in_store_ids(graph: Graph, ids: CompactIds) -> BufferGraph:
    """Return a buffer's graph in ids of the store; nodes that are not in the buffer have no edges.

    Args:
        graph: what `buffer_graph` has returned.
    """
    size, indptr = ids.layout.partition_rows, torch.zeros(ids.layout.num_nodes + 1, dtype=torch.int64)
    for slot, degrees in enumerate(graph.in_degrees().split(size)):
        first = int(ids.held[slot]) * size + 1
        indptr[first : first + len(degrees)] = degrees
    indices = ids.to_store(graph.indices).to(index_dtype(ids.layout.num_nodes))
    arrays = {"edge_ids": graph.edge_ids, "edge_weight": graph.edge_weight, "edge_type": graph.edge_type}
    return BufferGraph(torch.cumsum(indptr, 0, out=indptr), indices, **arrays, ids=ids)


def buffer_graph(ids: CompactIds, buckets: BucketsByPlace) -> Graph:
    """Merge buckets into a graph whose rows have the order of the whole graph's.

    Args:
        buckets: those between its partitions.

    Returns:
        A graph in compact ids. With all partitions it is the whole graph, renumbered.
    """
    tasks = [partial(_count_rows, slot, ids, buckets) for slot in range(len(ids.held))]
    indptr = torch.zeros(ids.num_nodes + 1, dtype=torch.int64)
    run_tasks([partial(task, indptr) for task in tasks])
    torch.cumsum(indptr, 0, out=indptr)
    arrays = _empty_arrays(ids, int(indptr[-1]))
    run_tasks([partial(_place, slot, ids, buckets, indptr, arrays) for slot in range(len(ids.held))])
    parallel_edges(partial(_sort_rows, indptr.numpy(), {name: as_integers(a) for name, a in arrays.items()}), indptr)
    return Graph(indptr, **arrays)


def _empty_arrays(ids: CompactIds, count: int) -> dict[str, Tensor]:
    kinds = {name: kind for name, kind in ids.layout.edge_arrays if name not in ("src", "dst")}
    return {
        name: torch.empty(count, dtype=kind) for name, kind in {"indices": index_dtype(ids.num_nodes), **kinds}.items()
    }


def _columns(slot: int, ids: CompactIds, buckets: BucketsByPlace) -> list[tuple[int, Bucket]]:
    """The buckets of one partition of destinations, each with the first compact id of its sources."""
    held, size = ids.held.tolist(), ids.layout.partition_rows
    return [(k * size, buckets[i, held[slot]]) for k, i in enumerate(held) if (i, held[slot]) in buckets]


def _count_rows(slot: int, ids: CompactIds, buckets: BucketsByPlace, indptr: Tensor) -> None:
    after = indptr[slot * ids.layout.partition_rows + 1 :].numpy()
    for _, bucket in _columns(slot, ids, buckets):
        _count(bucket.dst.numpy(), after)


def _place(slot: int, ids: CompactIds, buckets: BucketsByPlace, indptr: Tensor, arrays: Mapping[str, Tensor]) -> None:
    """Put the edges of one partition of destinations into their rows, bucket after bucket."""
    begin, size = slot * ids.layout.partition_rows, ids.layout.partition_rows
    cursor = indptr[:-1][begin : begin + size].numpy().copy()
    for first, bucket in _columns(slot, ids, buckets):
        places = np.empty(len(bucket.dst), np.int64)
        take_places(bucket.dst.numpy(), cursor, places)
        _scatter(bucket.src.numpy(), first, places, arrays["indices"].numpy())
        for name in ("edge_ids", "edge_type", "edge_weight"):
            if name in arrays:
                _scatter(as_integers(getattr(bucket, name)), 0, places, as_integers(arrays[name]))


def _sort_rows(indptr: np.ndarray, arrays: Mapping[str, np.ndarray], low: int, high: int) -> None:
    """Sort some rows by edge id, in place."""
    begin, end = indptr[low], indptr[high]
    order = np.empty(end - begin, np.int64)
    if _order_rows(low, high, indptr, arrays["edge_ids"], order):
        for values in arrays.values():
            _permute(values[begin:end], order)


@compiled
def _count(dst, after):
    for k in range(len(dst)):
        after[dst[k]] += 1


@compiled
def _scatter(values, offset, places, out):
    for k in range(len(places)):
        out[places[k]] = values[k] + offset


@compiled
def _permute(values, order):
    before = values.copy()
    for k in range(len(order)):
        values[k] = before[order[k]]


@compiled
def _order_rows(low, high, indptr, keys, order):
    """Positions of every row's edges in ascending order of their keys, from the first row's; whether any edge moves."""
    first, moves = indptr[low], False
    for row in range(low, high):
        begin, end = indptr[row] - first, indptr[row + 1] - first
        for k in range(begin, end):
            key, at = keys[first + k], k
            if k > begin and keys[first + order[k - 1]] > key:
                moves = True
                if end - begin > _FEW:
                    order[begin:end] = begin + np.argsort(keys[first + begin : first + end])
                    break
                while at > begin and keys[first + order[at - 1]] > key:
                    order[at] = order[at - 1]
                    at -= 1
            order[at] = k
    return moves
