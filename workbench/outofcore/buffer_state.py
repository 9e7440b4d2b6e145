"""`BufferState`: what a partition buffer shows between two moves: its graph, rows and the edges to train."""

import threading
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import check_ids
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.outofcore.bucket_order import BucketOrder
from workbench.outofcore.buffer_graph import buffer_graph, in_store_ids
from workbench.outofcore.buffer_rows import BufferRows
from workbench.outofcore.compact_ids import CompactIds
from workbench.outofcore.edge_buckets import Bucket
from workbench.outofcore.partition_store import PartitionStore
from workbench.sampling.dense import DenseSampler
from workbench.sampling.labor import LaborSampler
from workbench.sampling.neighbor import NeighborSampler
from workbench.sampling.random_walk import RandomWalkSampler
from workbench.sampling.sampler import Sampler

Buckets = dict[tuple[int, int], Bucket]
_ANY_IDS = (DenseSampler, LaborSampler, NeighborSampler, RandomWalkSampler)


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

    Args:
        sampler: the sampler.
    """
    return type(sampler) in _ANY_IDS and sampler.dependence is None
