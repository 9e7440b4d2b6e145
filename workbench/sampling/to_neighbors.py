"""Combine a value per node into its in-neighbours along all edges, as a sum or as the union of independent events."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.kernels.csr import ranges_by_edges
from workbench.kernels.jit import compiled
from workbench.kernels.prefetch import prefetch
from workbench.kernels.segment import edge_ranges
from workbench.kernels.threads import parallel_rows, run_tasks

_MAX_CHUNKS = 8
_EDGES_PER_SUM = 4  # at least as many edges per partial sum: these then need at most half the memory of the edges
_AHEAD = 16


def to_neighbors(graph: Graph, x: Tensor, *, unite: bool) -> Tensor:
    """Combine x of every node v into all its in-neighbours: 1 − Π (1 − x(v)), or with unite=False the sum.

    Args:
        graph: the graph.
        x: float64 [num_nodes], probabilities, or any values if they are summed.
        unite: 1 − Π (1 − x) instead of Σ x.

    Returns:
        float64 [num_nodes].
    """
    if x.device.type != "cpu":
        return to_neighbors_torch(graph, x, unite=unite)
    # Partial results by the size of the graph, not by threads: any number of these gives the same sums.
    chunks = max(1, min(_MAX_CHUNKS, graph.num_edges // max(1, _EDGES_PER_SUM * graph.num_nodes)))
    partial = torch.zeros(chunks, graph.num_nodes, dtype=torch.float64)
    arrays = graph.indptr.numpy(), graph.indices.numpy(), x.numpy()
    bounds = list(pairwise(ranges_by_edges(graph.indptr, chunks)))

    def combine(chunk: int) -> None:
        _combine(*arrays, *bounds[chunk], unite, partial[chunk].numpy())

    tasks: list[Callable[[], None]] = [lambda chunk=chunk: combine(chunk) for chunk in range(chunks)]
    run_tasks(tasks)
    sums = partial.numpy()
    parallel_rows(lambda lo, hi: _merge(sums, unite, lo, hi), graph.num_nodes)
    return partial[0]


def to_neighbors_torch(graph: Graph, x: Tensor, *, unite: bool) -> Tensor:
    """Combine values as `to_neighbors` does, in plain torch for any device; the oracle of the compiled kernels.

    Args:
        graph: the graph.
        x: float64 [num_nodes], probabilities, or any values if they are summed.
        unite: 1 − Π (1 − x) instead of Σ x.
    """
    values = torch.log1p(-x) if unite else x
    rows = torch.repeat_interleave(torch.arange(graph.num_nodes, device=x.device), graph.in_degrees())
    out = torch.zeros_like(x)
    for part in edge_ranges(graph.num_edges, 8):
        out.index_add_(0, graph.indices[part], values[rows[part]])
    return -torch.expm1(out) if unite else out


@compiled
def _combine(indptr, indices, x, first, last, unite, out):
    end = indptr[last]
    for v in range(first, last):
        value = x[v]
        if value == 0.0:
            continue
        for e in range(indptr[v], indptr[v + 1]):
            if e + _AHEAD < end:
                prefetch(out, indices[e + _AHEAD])
            u = indices[e]
            out[u] += value * (1.0 - out[u]) if unite else value


@compiled
def _merge(partial, unite, lo, hi):
    """Combine the partial results in the first of them, in the order of their edges."""
    for u in range(lo, hi):
        total = partial[0, u]
        for chunk in range(1, len(partial)):
            total += partial[chunk, u] * (1.0 - total) if unite else partial[chunk, u]
        partial[0, u] = total
