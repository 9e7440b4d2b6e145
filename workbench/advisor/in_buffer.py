"""`batches_in_buffer`: what MariusGNN's buffer would sample, and what its graphs cost, without a store on disk.

Partitions, their order and the states of training nodes are those of a store; so are the graphs, of which only those of
a few states are built.
"""

import time
from functools import partial
from math import ceil
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.dataset import Dataset
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.kernels.buffers import uninitialised
from workbench.kernels.jit import compiled
from workbench.kernels.threads import run_tasks
from workbench.outofcore.bucket_order import node_order
from workbench.outofcore.buffer_state import CompactIds, buffer_graph
from workbench.outofcore.build_store import assign_nodes, take_places
from workbench.outofcore.store_files import Bucket
from workbench.outofcore.store_layout import StoreLayout, name_of
from workbench.sampling.batches import Batches
from workbench.sampling.loader import batches
from workbench.sampling.sampler import Sampler

_STATES = 3
"""States whose graphs are built; all if there are no more."""


class InBuffer(NamedTuple):
    """Batches of some states of an epoch from a buffer.

    Args:
        loader: that samples more of them, from the last of these states.
        batches: some of each of these states.
        seconds: of sampling each.
        batches_per_epoch: number of batches of all states; the last one of a state may have fewer seeds.
        graph_seconds: of building the graphs of all states.
    """

    loader: Batches[tuple[int, MiniBatch]]
    batches: tuple[MiniBatch, ...]
    seconds: tuple[float, ...]
    batches_per_epoch: int
    graph_seconds: float


def batches_in_buffer(
    store: "Store", sampler: Sampler, *, capacity: int, batch_size: int, num_batches: int
) -> InBuffer:
    """Sample batches as from a buffer.

    Args:
        store: what the buffer would read.
        sampler: of batches.
        capacity: number of partitions in the buffer.
        batch_size: seeds per batch.
        num_batches: batches to sample, at most, but one per state whose graph is built.
    """
    layout, seed, ids = store.layout, store.seed, torch.arange(store.layout.num_train)
    order = node_order(layout.num_partitions, capacity, ceil(len(ids) / layout.partition_rows), seed=seed)
    at = order.states_of(ids, ids // layout.partition_rows, seed=seed)
    counts = at.bincount(minlength=order.num_states).tolist()
    trained = [place for place, count in enumerate(counts) if count]
    chosen = trained[:: ceil(len(trained) / _STATES)]
    found, seconds, building = [], [], []
    for place in chosen:
        held = CompactIds(layout, order.states[place])
        state, elapsed = store.built(held)
        building.append(elapsed)
        loader = batches(state, held.of("ids", ids[at == place]), sampler=sampler, batch_size=batch_size, seed=seed)
        some = timed_batches(loader, min(len(loader), max(1, num_batches // len(chosen))))
        found += some[0]
        seconds += some[1]
    per_epoch = sum(ceil(count / batch_size) for count in counts)
    return InBuffer(loader, tuple(found), tuple(seconds), per_epoch, order.num_states * median(building))


def timed_batches(
    loader: Batches[tuple[int, MiniBatch]], count: int
) -> tuple[tuple[MiniBatch, ...], tuple[float, ...]]:
    """Sample some batches.

    Args:
        loader: of batches.
        count: number of batches.

    Returns:
        The batches, and the seconds of sampling each.
    """
    found, seconds = [], []
    before = time.perf_counter()
    for _, mb in loader.steps(count):
        seconds.append(time.perf_counter() - before)
        found.append(mb)
        before = time.perf_counter()
    return tuple(found), tuple(seconds)


class Store:
    """Ids and edges of a store that is not built.

    Args:
        data: graph and training nodes.
        num_partitions: number of partitions.
        seed: of partitions, and of a buffer's order and batches.
    """

    def __init__(self, data: Dataset, num_partitions: int, seed: int) -> None:
        self._graph, self.seed, self._has_built = data.graph, seed, False
        graph = data.graph
        self._node_ids = assign_nodes(graph.num_nodes, data.train_idx, seed)
        self._more = {
            name: values
            for name, values in {"edge_type": graph.edge_type, "edge_weight": graph.edge_weight}.items()
            if values is not None
        }
        self.layout = StoreLayout(
            num_nodes=graph.num_nodes,
            num_partitions=num_partitions,
            num_train=len(data.train_idx),
            row_shape=(1,),
            dtype="float32",
            learnt=False,
            num_edges=graph.num_edges,
            **{name: name_of(values.dtype) for name, values in self._more.items()},
        )
        self._offset_of = torch.empty(graph.num_nodes, dtype=torch.int32)
        self._offset_of[self._node_ids] = torch.arange(graph.num_nodes, dtype=torch.int32) % self.layout.partition_rows

    def built(self, held: CompactIds) -> tuple[Graph, float]:
        """The graph of some partitions, and the seconds in which a buffer builds it."""
        buckets = self.buckets(held)
        if not self._has_built:
            buffer_graph(held, buckets)  # compiles kernels
            self._has_built = True
        start = time.perf_counter()
        return buffer_graph(held, buckets), time.perf_counter() - start

    def buckets(self, held: CompactIds) -> dict[tuple[int, int], Bucket]:
        """The buckets of edges between some partitions, by those of source and destination."""
        slots = len(held.held)
        slot_of = torch.full((self.layout.num_nodes,), slots, dtype=torch.uint8 if slots < 256 else torch.int64)
        for slot, partition in enumerate(held.held.tolist()):
            slot_of[self._nodes_of(partition)] = slot
        found: dict[tuple[int, int], Bucket] = {}
        run_tasks([partial(self._to, partition, held, slot_of, found) for partition in held.held.tolist()])
        return found

    def _nodes_of(self, partition: int) -> Tensor:
        first = partition * self.layout.partition_rows
        return self._node_ids[first : first + self.layout.nodes_of(partition)]

    def _to(self, j: int, held: CompactIds, slot_of: Tensor, found: dict[tuple[int, int], Bucket]) -> None:
        """The buckets of one partition of destinations."""
        graph, nodes, partitions = self._graph, self._nodes_of(j), held.held.tolist()
        most = int((graph.indptr[nodes + 1] - graph.indptr[nodes]).sum())
        room = [uninitialised(slot_of, most, dtype=kind) for kind in (torch.int64, torch.int32, torch.int32, None)]
        arrays = (nodes, graph.indptr, graph.indices, slot_of, self._offset_of, *room)
        count = _kept(len(partitions), *(one.numpy() for one in arrays))
        edges, src, dst, slots = (one[:count] for one in room)
        counts, places = slots.bincount(minlength=len(partitions)), torch.empty(count, dtype=torch.int64)
        take_places(slots.numpy(), (counts.cumsum(0) - counts).numpy(), places.numpy())
        arrays = {"edge_ids": edges, "src": src, "dst": dst}
        arrays |= {name: values[edges] for name, values in self._more.items()}
        arrays = {name: values.scatter(0, places, values) for name, values in arrays.items()}
        split = zip(*(values.split(counts.tolist()) for values in arrays.values()), strict=True)
        for i, values in zip(partitions, split, strict=True):
            found[i, j] = Bucket(**dict(zip(arrays, values, strict=True)))


@compiled
def _kept(num_slots, nodes, indptr, indices, slot_of, offset_of, edges, src, dst, slots):
    """Edges whose sources have a slot, by destination."""
    count = 0
    for k in range(len(nodes)):
        for edge in range(indptr[nodes[k]], indptr[nodes[k] + 1]):
            slot = slot_of[indices[edge]]
            if slot < num_slots:
                edges[count], src[count], dst[count], slots[count] = edge, offset_of[indices[edge]], k, slot
                count += 1
    return count
