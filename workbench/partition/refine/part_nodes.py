"""The nodes and bytes of every part of a batch, by traversing the contracted graph from the part's seeds."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.partition.refine.contraction import ContractedGraph


def count_bytes(graph: ContractedGraph, part: Tensor) -> Tensor:
    """Sum the bytes of the nodes of every part.

    Args:
        graph: the contracted computation graph of a batch.
        part: int64 [num_seeds] on the CPU, non-negative.

    Returns:
        float64 [largest label + 1].
    """
    num_parts = int(part.max()) + 1 if len(part) else 0
    return torch.from_numpy(nodes_by_part(graph, part, num_parts)[1])


def nodes_by_part(graph: ContractedGraph, part: Tensor, num_parts: int) -> tuple[list[Any], Any]:
    """Traverse every part from its seeds.

    Args:
        graph: the contracted computation graph of a batch.
        part: int64 [num_seeds], in [0, num_parts).
        num_parts: number of parts.

    Returns:
        For every part its nodes beyond the seeds, int64, packed as (pin count, node); and float64 [num_parts], the
        bytes of every part.
    """
    seeds = torch.argsort(part, stable=True).numpy()
    bounds = torch.zeros(num_parts + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(part, minlength=num_parts), 0, out=bounds[1:])
    arrays, num_nodes = graph.arrays(), len(graph.node_bytes)
    members: list[Any] = [None] * num_parts
    part_bytes = np.zeros(num_parts)

    def traverse(lo: int, hi: int) -> None:
        counts, visited = np.zeros(num_nodes, np.int32), np.empty(num_nodes, np.int64)
        for label in range(lo, hi):
            of_part = seeds[bounds[label] : bounds[label + 1]]
            end, part_bytes[label] = _traverse(arrays, of_part, counts, visited)
            members[label] = visited[len(of_part) : end].copy()

    parallel_rows(traverse, num_parts, min_rows=1)
    return members, part_bytes


@compiled
def _traverse(graph, seeds, counts, visited):
    """Traverse a part breadth-first from its seeds, counting pins in `counts`, which is zero before and after.

    Returns the end of `visited` and the part's bytes; entries beyond the seeds are packed as (pin count, node).
    """
    _, indptr, sources, node_bytes, _ = graph
    end, total = len(seeds), 0.0
    visited[:end] = seeds
    head = 0
    while head < end:
        node = visited[head]
        head += 1
        total += node_bytes[node]
        for e in range(indptr[node], indptr[node + 1]):
            source = sources[e]
            if counts[source] == 0:
                visited[end] = source
                end += 1
            counts[source] += 1
    for i in range(len(seeds), end):
        node = visited[i]
        visited[i] = (np.int64(counts[node]) << 32) | node
        counts[node] = 0
    return end, total
