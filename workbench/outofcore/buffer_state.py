"""`BufferState`: what a partition buffer shows between two moves: its graph, rows and the edges to train."""

import threading
from typing import Any

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.outofcore.bucket_order import BucketOrder
from workbench.outofcore.buffer_graph import buffer_graph
from workbench.outofcore.buffer_rows import BufferRows
from workbench.outofcore.edge_buckets import Bucket
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
