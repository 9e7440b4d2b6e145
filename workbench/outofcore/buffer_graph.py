"""The graph of a buffer, in ids of the store: the edges of which both ends are in it, by destination."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.outofcore.edge_buckets import Bucket
from workbench.outofcore.store_layout import StoreLayout

_MIN_ROWS = 16384  # per thread
_FEW = 24  # elements that insertion sort takes less time for than a general sort


@dataclass(frozen=True, eq=False, repr=False)
class BufferGraph(Graph):
    """A graph that has the rows of some partitions alone; to sample for a node of another one is an error.

    Args:
        held: int64, the partitions.
        partition_rows: nodes per partition.
    """

    held: Tensor = field(kw_only=True)
    partition_rows: int = field(kw_only=True)

    def check_rows(self, name: str, nodes: Tensor) -> None:
        """Check that all nodes are of partitions in the buffer.

        Args:
            name: name of the argument, for the message.
            nodes: int64 [n], ids of the store.

        Raises:
            IndexError: one is not; the message names its partition.
        """
        partitions = nodes // self.partition_rows
        outside = (~torch.isin(partitions, self.held)).nonzero()[:, 0]
        if len(outside):
            at = int(outside[0])
            raise IndexError(
                f"{name} contains {int(nodes[at])} of partition {int(partitions[at])}, but the buffer has the "
                f"partitions {self.held.tolist()}; sample for nodes of state.partitions"
            )


def buffer_graph(layout: StoreLayout, buckets: Mapping[tuple[int, int], Bucket]) -> BufferGraph:
    """Merge buckets into a graph whose rows have the order of the whole graph's.

    Args:
        layout: sizes of the store.
        buckets: by (partition of the sources, partition of the destinations).

    Returns:
        A graph of all ids of the store, with the rows of nodes in the buffer. With all buckets it is the whole
        graph, renumbered.
    """
    indptr = _row_offsets(layout, buckets)
    count = int(indptr[-1])
    dtype = torch.int32 if layout.num_nodes < 2**31 else torch.int64
    arrays = {"indices": torch.empty(count, dtype=dtype)}
    arrays |= {name: torch.empty(count, dtype=kind) for name, kind in layout.edge_arrays if name not in ("src", "dst")}
    _place(layout, buckets, indptr, arrays)
    _sort_rows(indptr, arrays)
    held = torch.tensor(sorted({j for _, j in buckets}), dtype=torch.int64)
    return BufferGraph(indptr, **arrays, held=held, partition_rows=layout.partition_rows)


def _row_offsets(layout: StoreLayout, buckets: Mapping[tuple[int, int], Bucket]) -> Tensor:
    indptr = torch.zeros(layout.num_nodes + 1, dtype=torch.int64)
    for (_, j), bucket in buckets.items():
        _count(bucket.dst.numpy(), indptr[j * layout.partition_rows + 1 :].numpy())
    return torch.cumsum(indptr, 0, out=indptr)


def _place(
    layout: StoreLayout, buckets: Mapping[tuple[int, int], Bucket], indptr: Tensor, arrays: Mapping[str, Tensor]
) -> None:
    """Put every edge into its row, those of a bucket behind those of the bucket before."""
    cursor, s = indptr[:-1].numpy().copy(), layout.partition_rows
    for (i, j), bucket in buckets.items():
        places = np.empty(len(bucket.dst), np.int64)
        _take_places(bucket.dst.numpy(), cursor[j * s :], places)
        at = torch.from_numpy(places)
        arrays["indices"][at] = (bucket.src.long() + i * s).to(arrays["indices"].dtype)
        for name in ("edge_ids", "edge_type", "edge_weight"):
            if name in arrays:
                arrays[name][at] = getattr(bucket, name)


def _sort_rows(indptr: Tensor, arrays: Mapping[str, Tensor]) -> None:
    """Sort every row by edge id, in place."""
    order = torch.empty(len(arrays["indices"]), dtype=torch.int64)
    kernel_arrays = indptr.numpy(), arrays["edge_ids"].numpy(), order.numpy()
    parallel_rows(lambda low, high: _order_rows(low, high, *kernel_arrays), len(indptr) - 1, _MIN_ROWS)
    for values in arrays.values():
        values.copy_(values[order])


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
def _order_rows(low, high, indptr, keys, order):
    """Positions of every row's edges in ascending order of their keys."""
    for row in range(low, high):
        begin, end = indptr[row], indptr[row + 1]
        if end - begin <= _FEW:
            for k in range(begin, end):
                key, at = keys[k], k
                while at > begin and keys[order[at - 1]] > key:
                    order[at] = order[at - 1]
                    at -= 1
                order[at] = k
        else:
            order[begin:end] = begin + np.argsort(keys[begin:end])
