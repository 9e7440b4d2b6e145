"""Star partition of a batch: METIS on the output block itself, whose sources are the hubs of stars.

A source that seeds of several parts need has cut edges. The graph has no more edges than the block, unlike the
redundancy-embedded graph, which expands every source into a clique of the seeds that share it. Sources that one or two
seeds read are no vertices: the first follow their seed, the second are an edge between theirs, at the same cut.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.jit import compiled
from workbench.kernels.symmetric_csr import symmetric_rows
from workbench.partition.balance import cut_evenly, fill_empty_parts
from workbench.partition.batch.prepared_batch import Cut, PreparedBatch
from workbench.partition.metis import metis
from workbench.partition.refine.computation_graph import fair_shares

_ROUNDS = 2  # instead of 10: saves a fifth of the time for 1 % more inputs on four real graphs
_BISECTED = 500  # vertices per part up to which recursive bisection is faster than k-way METIS, which ends with one too


@dataclass(frozen=True, eq=False)
class StarGraph:
    """The output block as an undirected graph of its seeds, in order, and of the sources that three or more read.

    Args:
        indptr: int64 [vertices + 1].
        indices: int64 [entries], both directions of every edge.
        edge_weight: int64 [entries], 1, or for two seeds the number of sources that they alone read.
        weights: float64 [vertices], the weight of every vertex and its share of those of removed sources.
    """

    indptr: Tensor
    indices: Tensor
    edge_weight: Tensor
    weights: Tensor


def prepare_star(batch: PreparedBatch) -> Cut:
    """Minimize the edge cut of the output block's bipartite graph, in which a seed and its source are one vertex."""
    num_seeds, options = batch.mb.num_seeds, batch.options
    if not batch.host.blocks:
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
    """Build the graph of a batch's output block.

    Args:
        batch: a batch of at least one block.
    """
    block, num_seeds = batch.host.blocks[-1], batch.mb.num_seeds
    rows = torch.repeat_interleave(torch.arange(block.num_dst, dtype=block.indices.dtype), block.indptr.diff())
    proper = rows != block.indices
    full = symmetric_rows(rows[proper], block.indices[proper], None, block.num_src)
    degrees = full.indptr.diff()
    kept = (torch.arange(block.num_src) < num_seeds) | (degrees > 2)
    numbers = kept.cumsum(0) - 1
    indptr = torch.zeros(int(kept.sum()) + 1, dtype=torch.int64)
    indices, edge_weight = (torch.empty(len(full.indices), dtype=torch.int64) for _ in range(2))
    weights = _vertex_weights(batch, block.num_src)
    arrays = (full.indptr, full.indices, kept, numbers, weights, indptr, indices, edge_weight)
    _remove_small_stars(*(t.numpy() for t in arrays))
    entries = int(indptr[-1])
    return StarGraph(indptr, indices[:entries], edge_weight[:entries], weights[kept])


@compiled
def _remove_small_stars(full_indptr, full_indices, kept, numbers, weights, indptr, indices, edge_weight):
    """Copy the rows of kept vertices; removed neighbors of one neighbor vanish, those of two become an edge of it."""
    end, slots = 0, np.full(len(indptr) - 1, -1, np.int64)
    for vertex in range(len(kept)):
        begin, stop = full_indptr[vertex], full_indptr[vertex + 1]
        if not kept[vertex]:
            for e in range(begin, stop):
                weights[full_indices[e]] += weights[vertex] / (stop - begin)
            continue
        first = end
        for e in range(begin, stop):
            other = np.int64(full_indices[e])
            if not kept[other]:
                middle = full_indptr[other]
                if full_indptr[other + 1] - middle < 2:
                    continue
                other = np.int64(full_indices[middle] + full_indices[middle + 1]) - vertex
            if slots[numbers[other]] < first:
                slots[numbers[other]], indices[end], edge_weight[end] = end, numbers[other], 0
                end += 1
            edge_weight[slots[numbers[other]]] += 1
        indptr[numbers[vertex] + 1] = end


def _vertex_weights(batch: PreparedBatch, num_src: int) -> Tensor:
    """Return the sources' fair shares of the bytes of all nodes and edges, or the seeds' given weights and zeros."""
    weights = batch.options.weights
    if weights is not None:
        return torch.cat([weights.to(torch.float64), torch.zeros(num_src - len(weights), dtype=torch.float64)])
    seeds, graph = batch.mb.num_seeds, batch.computation_graph
    shares = fair_shares(graph)[seeds : seeds + num_src]
    shares[:seeds] += graph.node_bytes[:seeds]
    return shares
