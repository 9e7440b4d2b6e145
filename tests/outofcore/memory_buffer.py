"""A partition buffer without a disk, by brute force: what its states show is cut out of a graph in memory."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import workbench as wb
from workbench.core.graph import Graph


@dataclass
class MemoryStore:
    """A graph and rows in consecutive partitions; ids are those of the graph."""

    graph: Graph
    rows: Tensor
    num_partitions: int

    @property
    def num_nodes(self) -> int:
        return self.graph.num_nodes

    @property
    def partition_rows(self) -> int:
        return -(-self.num_nodes // self.num_partitions)

    @property
    def edges(self) -> Tensor:
        """int64 [n, 2] by bucket, in CSR order within one."""
        dst = torch.repeat_interleave(torch.arange(self.num_nodes), self.graph.in_degrees())
        edges = torch.stack([self.graph.indices.long(), dst], 1)
        return edges[self._buckets(edges).argsort(stable=True)]

    @property
    def bucket_edges(self) -> Tensor:
        p = self.num_partitions
        return self._buckets(self.edges).bincount(minlength=p * p).view(p, p)

    def _buckets(self, edges: Tensor) -> Tensor:
        part = edges // self.partition_rows
        return part[:, 0] * self.num_partitions + part[:, 1]


@dataclass
class Numbers:
    """Positions of nodes among some, which ascend."""

    nodes: Tensor

    @property
    def num_nodes(self) -> int:
        return len(self.nodes)

    def of(self, name: str, ids: Tensor) -> Tensor:
        assert torch.isin(ids, self.nodes).all(), name
        return torch.searchsorted(self.nodes, ids.contiguous())

    def to_store(self, ids: Tensor) -> Tensor:
        return self.nodes[ids]


class MemoryBuffer:
    """States of an order over a `MemoryStore`; `closed` counts the epochs that have ended."""

    def __init__(self, store: MemoryStore, capacity: int) -> None:
        self.store, self.capacity, self.closed = store, capacity, 0

    def epoch(self, order: Any) -> Iterator[Any]:
        try:
            for number, held in enumerate(order.states):
                yield self._state(order, number, held)
        finally:
            self.closed += 1

    def _state(self, order: Any, number: int, held: Tensor) -> Any:
        store = self.store
        inside = torch.isin(torch.arange(store.num_nodes) // store.partition_rows, held)
        dst = torch.repeat_interleave(torch.arange(store.num_nodes), store.graph.in_degrees())
        kept = (inside[store.graph.indices.long()] & inside[dst]).nonzero()[:, 0]
        ids, src, dst = Numbers(inside.nonzero()[:, 0]), store.graph.indices[kept].long(), dst[kept]
        rows = store.rows.masked_fill(~inside[:, None], torch.nan)
        graph = Graph(offsets(dst, store.num_nodes), src, edge_ids=kept)
        compact = Graph(offsets(ids.of("dst", dst), ids.num_nodes), ids.of("src", src), edge_ids=kept)

        def edges() -> Tensor:
            buckets = order.buckets(number)
            of = store.edges // store.partition_rows
            trained = (of[:, None, :] == buckets[None]).all(2).any(1)
            return store.edges[trained]

        def sample(sampler: Any, seeds: Tensor, **options: Any) -> wb.MiniBatch:
            batch = sampler.sample(compact, ids.of("seeds", seeds), **options)
            return replace(batch, node_ids=ids.to_store(batch.node_ids))

        found = {"number": number, "partitions": held, "ids": ids, "graph": graph, "compact_graph": compact}
        return SimpleNamespace(**found, rows=wb.MemoryRows(rows), edges=edges, sample=sample)


def offsets(ascending: Tensor, num_nodes: int) -> Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.int64), ascending.bincount(minlength=num_nodes).cumsum(0)])
