"""The graph of a buffer: the edges of which both ends are in it, by destination, in compact or in store ids."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_edges, run_tasks
from workbench.outofcore.compact_ids import CompactIds
from workbench.outofcore.edge_buckets import Bucket

Buckets = Mapping[tuple[int, int], Bucket]
"""By (partition of the sources, partition of the destinations)."""

_FEW = 24  # elements that insertion sort takes less time for than a general sort
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


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
            name: name of the argument, for the message.
            nodes: int64 [n], ids of the store.

        Raises:
            IndexError: one is not; the message names its partition.
        """
        self.ids.of(name, nodes)


def in_store_ids(graph: Graph, ids: CompactIds) -> BufferGraph:
    """Return a buffer's graph in ids of the store; nodes that are not in the buffer have no edges.

    Args:
        graph: what `buffer_graph` has returned.
        ids: its nodes.
    """
    size, indptr = ids.layout.partition_rows, torch.zeros(ids.layout.num_nodes + 1, dtype=torch.int64)
    for slot, degrees in enumerate(graph.in_degrees().split(size)):
        first = int(ids.held[slot]) * size + 1
        indptr[first : first + len(degrees)] = degrees
    indices = ids.to_store(graph.indices).to(_id_dtype(ids.layout.num_nodes))
    arrays = {"edge_ids": graph.edge_ids, "edge_weight": graph.edge_weight, "edge_type": graph.edge_type}
    return BufferGraph(torch.cumsum(indptr, 0, out=indptr), indices, **arrays, ids=ids)


def buffer_graph(ids: CompactIds, buckets: Buckets) -> Graph:
    """Merge buckets into a graph whose rows have the order of the whole graph's.

    Args:
        ids: the nodes of the buffer.
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
    parallel_edges(partial(_sort_rows, indptr.numpy(), {name: _bits(a) for name, a in arrays.items()}), indptr)
    return Graph(indptr, **arrays)


def _empty_arrays(ids: CompactIds, count: int) -> dict[str, Tensor]:
    kinds = {name: kind for name, kind in ids.layout.edge_arrays if name not in ("src", "dst")}
    return {
        name: torch.empty(count, dtype=kind) for name, kind in {"indices": _id_dtype(ids.num_nodes), **kinds}.items()
    }


def _id_dtype(num_nodes: int) -> torch.dtype:
    return torch.int32 if num_nodes < 2**31 else torch.int64


def _columns(slot: int, ids: CompactIds, buckets: Buckets) -> list[tuple[int, Bucket]]:
    """The buckets of one partition of destinations, each with the first compact id of its sources."""
    held, size = ids.held.tolist(), ids.layout.partition_rows
    return [(k * size, buckets[i, held[slot]]) for k, i in enumerate(held) if (i, held[slot]) in buckets]


def _count_rows(slot: int, ids: CompactIds, buckets: Buckets, indptr: Tensor) -> None:
    after = indptr[slot * ids.layout.partition_rows + 1 :].numpy()
    for _, bucket in _columns(slot, ids, buckets):
        _count(bucket.dst.numpy(), after)


def _place(slot: int, ids: CompactIds, buckets: Buckets, indptr: Tensor, arrays: Mapping[str, Tensor]) -> None:
    """Put the edges of one partition of destinations into their rows, bucket after bucket."""
    begin, size = slot * ids.layout.partition_rows, ids.layout.partition_rows
    cursor = indptr[:-1][begin : begin + size].numpy().copy()
    for first, bucket in _columns(slot, ids, buckets):
        places = np.empty(len(bucket.dst), np.int64)
        _take_places(bucket.dst.numpy(), cursor, places)
        _scatter(bucket.src.numpy(), first, places, arrays["indices"].numpy())
        for name in ("edge_ids", "edge_type", "edge_weight"):
            if name in arrays:
                _scatter(_bits(getattr(bucket, name)), 0, places, _bits(arrays[name]))


def _bits(values: Tensor) -> np.ndarray:
    """Values as integers: kernels copy types and weights of any dtype."""
    return values.view(_BITS[values.element_size()]).numpy()


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
def _take_places(dst, cursor, places):
    for k in range(len(dst)):
        places[k] = cursor[dst[k]]
        cursor[dst[k]] += 1


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
