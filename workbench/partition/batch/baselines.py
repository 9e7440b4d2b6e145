"""Partition methods without a model of redundancy: Betty's baselines (ASPLOS 2023, section 6), star and cluster.

range, random and metis are Betty's; star is METIS on the output block itself; cluster reads a partition of the graph.
"""

import heapq
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import ID_DTYPES
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Purpose, stream
from workbench.kernels.csr import offsets
from workbench.kernels.hash import hash_index_torch
from workbench.kernels.jit import compiled
from workbench.kernels.transpose import transpose
from workbench.partition.balance import cut_evenly, fill_empty_parts
from workbench.partition.batch.prepared_batch import Cut, PreparedBatch, output_rows
from workbench.partition.computation_graph import fair_shares
from workbench.partition.metis import metis, symmetric_adjacency


def prepare_random(batch: PreparedBatch) -> Cut:
    """Cut the seeds, sorted by a hash of (seed, step, raw-graph id), into runs of equal weight."""
    key = stream(batch.options.seed, Purpose.PARTITION, batch.mb.step)
    order = torch.argsort(hash_index_torch(key, batch.seeds))
    return lambda num_parts: cut_evenly(order, num_parts, batch.options.weights)


def prepare_range(batch: PreparedBatch) -> Cut:
    """Cut the seeds, sorted by raw-graph id, into runs of equal weight."""
    order = torch.argsort(batch.seeds)
    return lambda num_parts: cut_evenly(order, num_parts, batch.options.weights)


def prepare_metis(batch: PreparedBatch) -> Cut:
    """Minimize the edge cut of the graph that the output block induces on the seeds, made undirected and simple."""
    indptr, indices, _ = output_rows(batch.host)
    among_seeds = indices < batch.mb.num_seeds
    adjacency = symmetric_adjacency(offsets(among_seeds.long())[indptr], indices[among_seeds])
    given = batch.options
    options = {"weights": given.weights, "seed": given.seed, "time_limit_seconds": given.time_budget_seconds}
    return lambda num_parts: metis(*adjacency, num_parts, **options)


def share_among_seeds(mb: MiniBatch) -> float:
    """Return the fraction of the output block's edges whose source is a seed too; 0 without edges."""
    indices = output_rows(mb)[1]
    return float((indices < mb.num_seeds).double().mean()) if len(indices) else 0.0


_ROUNDS = 2  # instead of 10: saves a fifth of the time for 1 % more inputs on four real graphs

_BISECTED = 500  # vertices per part up to which recursive bisection is faster than k-way METIS, which ends with one too


@dataclass(frozen=True, eq=False)
class StarGraph:
    """The output block as an undirected graph of its seeds, in order, and of the sources that three or more read.

    Args:
        indptr: int64 [vertices + 1].
        indices: int64 [entries], both directions of every edge.
        edge_weight: int64 [entries], between two seeds the number of sources, themselves included, that only they need;
            otherwise 1.
        weights: float64 [vertices], the weight of every vertex and its share of those of removed sources.
    """

    indptr: Tensor
    indices: Tensor
    edge_weight: Tensor
    weights: Tensor


def prepare_star(batch: PreparedBatch) -> Cut:
    """Minimize the edge cut of the output block's bipartite graph, in which a seed and its source are one vertex."""
    num_seeds, options = batch.mb.num_seeds, batch.options
    if not batch.mb.blocks:
        return lambda num_parts: cut_evenly(torch.arange(num_seeds), num_parts, options.weights)
    graph = star_graph(batch)

    def cut(num_parts: int) -> Tensor:
        part = metis(
            graph.indptr,
            graph.indices,
            num_parts,
            edge_weight=graph.edge_weight,
            weights=graph.weights,
            seed=options.seed,
            imbalance=options.imbalance,
            rounds=_ROUNDS,
            recursive=len(graph.weights) <= _BISECTED * num_parts,
            time_limit_seconds=options.time_budget_seconds,
        )
        return fill_empty_parts(part[:num_seeds], num_parts)

    return cut


def star_graph(batch: PreparedBatch) -> StarGraph:
    """Build the graph of the output block of a batch that has one."""
    graph, num_seeds, num_src = batch.computation_graph, batch.mb.num_seeds, batch.mb.blocks[-1].num_src
    indptr = graph.indptr[: num_seeds + 1]
    indices = graph.sources[: int(indptr[-1])] - num_seeds
    columns = transpose(indptr, indices, num_src)
    kept = columns.indptr.diff() > 2
    kept[:num_seeds] = True
    numbers, weights = kept.cumsum(0) - 1, _vertex_weights(batch, num_src)
    out = [torch.empty(size, dtype=torch.int64) for size in (int(kept.sum()) + 1, *[2 * len(indices)] * 2)]
    arrays = (indptr, indices, columns.indptr, columns.rows, kept, numbers, weights, *out)
    _build(*(t.numpy() for t in arrays))
    entries = int(out[0][-1])
    return StarGraph(out[0], out[1][:entries], out[2][:entries], weights[kept])


@compiled
def _build(indptr, indices, col_indptr, readers, kept, numbers, weights, out_indptr, out, edge_weight):
    """Write the rows of kept vertices, and add the weights of the others to those of their readers."""
    num_seeds, end, slots = len(indptr) - 1, 0, np.full(len(out_indptr) - 1, -1, np.int64)
    out_indptr[0] = 0
    for vertex in range(len(kept)):
        begin, stop = col_indptr[vertex], col_indptr[vertex + 1]
        if not kept[vertex]:
            for c in range(begin, stop):
                weights[readers[c]] += weights[vertex] / (stop - begin)
            continue
        first = end
        for c in range(begin, stop):
            end = _add_edge(numbers[readers[c]], first, end, slots, out, edge_weight)
        if vertex < num_seeds:
            for e in range(indptr[vertex], indptr[vertex + 1]):
                source = indices[e]
                if kept[source]:
                    end = _add_edge(numbers[source], first, end, slots, out, edge_weight)
                elif col_indptr[source + 1] - col_indptr[source] == 2:
                    pair = col_indptr[source]
                    other = readers[pair] if readers[pair] != vertex else readers[pair + 1]
                    end = _add_edge(numbers[other], first, end, slots, out, edge_weight)
        out_indptr[numbers[vertex] + 1] = end


@compiled
def _add_edge(other, first, end, slots, out, edge_weight):
    """Add 1 to the weight of the edge to another vertex in the row that begins at `first`; return the row's end."""
    if slots[other] < first:
        slots[other], out[end], edge_weight[end] = end, other, 0
        end += 1
    edge_weight[slots[other]] += 1
    return end


def _vertex_weights(batch: PreparedBatch, num_src: int) -> Tensor:
    """Return the sources' fair shares of the bytes of all nodes and edges, or the seeds' given weights and zeros."""
    weights = batch.options.weights
    if weights is not None:
        return torch.cat([weights.to(torch.float64), torch.zeros(num_src - len(weights), dtype=torch.float64)])
    seeds, graph = batch.mb.num_seeds, batch.computation_graph
    shares = fair_shares(graph)[seeds : seeds + num_src]
    shares[:seeds] += graph.node_bytes[:seeds]
    return shares


def prepare_cluster(batch: PreparedBatch) -> Cut:
    """Look up the seeds' labels in `node_parts`; parts are only as balanced as the graph partition makes them.

    Labels below the number of parts are the parts, so a label without seeds leaves a part empty (a split drops it). If
    labels reach it, whole clusters are packed into parts instead: heaviest first, each into the lightest part.

    Raises:
        ValueError: no `node_parts`, or a negative label.
        TypeError: `node_parts` is not an integer tensor.
        IndexError: a seed that `node_parts` does not cover.
    """
    labels = _labels(batch.seeds, batch.options.node_parts)
    cluster = torch.unique(labels, return_inverse=True)[1]
    weights = None if batch.options.weights is None else batch.options.weights.to(torch.float64)
    cluster_weights = torch.bincount(cluster, weights=weights).tolist()

    def cut(num_parts: int) -> Tensor:
        if not len(labels) or int(labels.max()) < num_parts:
            return labels.clone()
        return _pack(cluster_weights, num_parts)[cluster]

    return cut


def _labels(seeds: Tensor, node_parts: Tensor | None) -> Tensor:
    if node_parts is None:
        raise ValueError(
            "method 'cluster' reads a partition of the whole graph: pass node_parts=partition_graph(g, num_parts)"
        )
    if node_parts.dtype not in ID_DTYPES or node_parts.dim() != 1:
        raise TypeError(
            f"node_parts must be an integer vector, not {node_parts.dtype} of shape {tuple(node_parts.shape)}"
        )
    if len(seeds) and int(seeds.max()) >= len(node_parts):
        raise IndexError(
            f"node_parts has {len(node_parts)} labels, but the batch has seed {int(seeds.max())}; pass one label per "
            "node of the graph"
        )
    labels = node_parts[seeds.to(node_parts.device)].to("cpu", torch.int64)
    if len(labels) and int(labels.min()) < 0:
        raise ValueError(f"node_parts is {int(labels.min())} for a seed; labels must be non-negative")
    return labels


def _pack(weights: list[float], num_parts: int) -> Tensor:
    """Assign clusters to parts greedily: heaviest cluster first, each to the lightest part."""
    lightest = [(0.0, label) for label in range(num_parts)]
    part = torch.empty(len(weights), dtype=torch.int64)
    for cluster in sorted(range(len(weights)), key=lambda c: -weights[c]):
        weight, label = lightest[0]
        part[cluster] = label
        heapq.heapreplace(lightest, (weight + weights[cluster], label))
    return part
