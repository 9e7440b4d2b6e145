"""`batches_in_buffer`: what MariusGNN's buffer would sample, and what its graphs cost, without a store on disk.

Partitions, their order and the states of training nodes are those of a store; so are the graphs, of which only those of
a few states are built.
"""

import time
from collections.abc import Iterator
from math import ceil
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.dataset import Dataset
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.outofcore.bucket_order import node_order
from workbench.outofcore.buffer_state import CompactIds, buffer_graph
from workbench.outofcore.build_store import assign_nodes
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
    data: Dataset,
    sampler: Sampler,
    *,
    num_partitions: int,
    capacity: int,
    batch_size: int,
    num_batches: int,
    seed: int,
) -> InBuffer:
    """Sample batches as from a buffer.

    Args:
        data: graph and training nodes.
        sampler: of batches.
        num_partitions: number p of partitions.
        capacity: number c of partitions in the buffer.
        batch_size: seeds per batch.
        num_batches: batches to sample, at most, but one per state whose graph is built.
        seed: of partitions, order and batches.
    """
    graph, train = data.graph, data.train_idx
    store = Store(graph, assign_nodes(graph.num_nodes, train, seed), len(train), num_partitions)
    order = node_order(num_partitions, capacity, ceil(len(train) / store.layout.partition_rows), seed=seed)
    ids = torch.arange(len(train))
    at = order.states_of(ids, ids // store.layout.partition_rows, seed=seed)
    counts = at.bincount(minlength=order.num_states).tolist()
    trained = [place for place, count in enumerate(counts) if count]
    chosen = trained[:: ceil(len(trained) / _STATES)]
    found, seconds, building = [], [], []
    for place in chosen:
        held = CompactIds(store.layout, order.states[place])
        buckets = dict(store.buckets(held))
        buffer_graph(held, buckets)  # compiles kernels
        start = time.perf_counter()
        state = buffer_graph(held, buckets)
        building.append(time.perf_counter() - start)
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
        graph: the graph.
        node_ids: int64 [num_nodes], the graph's id of every node of the store, training nodes first.
        num_train: number of training nodes.
        num_partitions: number of partitions.
    """

    def __init__(self, graph: Graph, node_ids: Tensor, num_train: int, num_partitions: int) -> None:
        self._graph, self._node_ids = graph, node_ids
        self._new_ids = torch.empty_like(node_ids)
        self._new_ids[node_ids] = torch.arange(len(node_ids))
        self._more = {
            name: values
            for name, values in {"edge_type": graph.edge_type, "edge_weight": graph.edge_weight}.items()
            if values is not None
        }
        self.layout = StoreLayout(
            num_nodes=graph.num_nodes,
            num_partitions=num_partitions,
            num_train=num_train,
            row_shape=(1,),
            dtype="float32",
            learnt=False,
            num_edges=graph.num_edges,
            **{name: name_of(values.dtype) for name, values in self._more.items()},
        )

    def buckets(self, held: CompactIds) -> Iterator[tuple[tuple[int, int], Bucket]]:
        """The buckets of edges between some partitions, by those of source and destination."""
        graph, size, p = self._graph, self.layout.partition_rows, self.layout.num_partitions
        first = held.to_store(torch.arange(held.num_nodes))
        nodes = self._node_ids[first]
        degrees = graph.indptr[nodes + 1] - graph.indptr[nodes]
        begin = graph.indptr[nodes] - (degrees.cumsum(0) - degrees)
        edges = torch.arange(int(degrees.sum())) + torch.repeat_interleave(begin, degrees)
        dst = torch.repeat_interleave(first, degrees)
        src = self._new_ids[graph.indices[edges].long()]
        inside = torch.isin(torch.arange(p), held.held)[src // size]
        edges, src, dst = edges[inside], src[inside], dst[inside]
        bucket = src // size * p + dst // size
        bucket, order = bucket.sort(stable=True)  # in the order of destinations, as they are here
        places, counts = bucket.unique_consecutive(return_counts=True)
        for place, of in zip(places.tolist(), order.split(counts.tolist()), strict=True):
            i, j = divmod(place, p)
            more = {name: values[edges[of]] for name, values in self._more.items()}
            ends = {"src": (src[of] - i * size).int(), "dst": (dst[of] - j * size).int()}
            yield (i, j), Bucket(edges[of], **ends, **more)
