"""Pin counts per node and part: how many nodes of a part read each node of the contracted graph.

Every node beyond the seeds is a net; its pins are the nodes of the previous hop that read it. A part contains a node
while the node has a pin in the part, so the count tells when the last one leaves. A node has a row of counts: one per
part if a quarter of the parts or more may contain it, otherwise one entry (count, part) per part that does, zeros after
the last. No more parts contain a node than seeds reach it, so rows never grow.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import CapacityError
from workbench.core.units import format_bytes
from workbench.kernels.csr import offsets
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.partition.refine.computation_graph import ContractedGraph

MAX_PARTS = 1 << 16

PART_BITS = 16  # of an entry: count in the high bits, part in the low ones; nets with entries have fewer pins than 2¹⁶

PART_MASK = (1 << PART_BITS) - 1

_DENSE = 4  # a row has a count per part if at least one part in this many may contain its node


@dataclass(frozen=True, eq=False)
class PinCounts:
    """Pin counts by node and part; the kernels of this module update the rows in place.

    Args:
        num_seeds: the number of the first node that has a row.
        num_parts: number of parts.
        row_starts: int64 [nodes beyond the seeds + 1], where the rows of `rows` begin.
        rows: uint32, rows of `num_parts` counts, and shorter ones of entries.
        part_bytes: float64 [num_parts], bytes of every part.
    """

    num_seeds: int
    num_parts: int
    row_starts: Any
    rows: Any
    part_bytes: Any

    def arrays(self) -> tuple[Any, ...]:
        """Return the fields that kernels read and update."""
        return self.num_seeds, self.num_parts, self.row_starts, self.rows


def count_pins(graph: ContractedGraph, part: Tensor, num_parts: int, max_bytes: int) -> PinCounts:
    """Count the pins of every node in every part.

    Args:
        graph: the contracted computation graph of a batch.
        part: int64 [num_seeds], in [0, num_parts).
        num_parts: number of parts.
        max_bytes: memory that the counts may use.

    Returns:
        The counts, and the bytes of every part.

    Raises:
        CapacityError: they would use more, or there are more parts than an entry can represent.
    """
    bounds = _bound_parts(graph, num_parts)
    row_starts = offsets(torch.where(bounds * _DENSE >= num_parts, num_parts, bounds))
    most_entries = int(bounds.sum())  # of the parts' nodes, which exist until they are in rows
    _check(num_parts, 8 * (len(row_starts) + most_entries) + 4 * int(row_starts[-1]), max_bytes)
    members, part_bytes = nodes_by_part(graph, part, num_parts)
    rows = np.zeros(int(row_starts[-1]), np.uint32)
    pins = PinCounts(graph.num_seeds, num_parts, row_starts.numpy(), rows, part_bytes)
    for label, packed in enumerate(members):
        _insert(pins.arrays(), packed, label)
    return pins


def _check(num_parts: int, required: int, limit: int) -> None:
    if required > limit:
        raise CapacityError(
            f"the refinement requires {format_bytes(required)}, more than the limit of {format_bytes(limit)}: use "
            "fewer parts, a method without refinement (star), or raise max_bytes"
        )
    if num_parts > MAX_PARTS:
        raise CapacityError(
            f"the refinement supports up to {MAX_PARTS:,} parts, not {num_parts:,}: use a method without refinement "
            "(star), or fewer parts"
        )


def _bound_parts(graph: ContractedGraph, num_parts: int) -> Tensor:
    """Bound how many parts may contain each node beyond the seeds: no more than seeds reach it."""
    bounds = torch.zeros(len(graph.node_bytes), dtype=torch.int64)
    _add_bounds(graph.num_seeds, *(t.numpy() for t in (graph.indptr, graph.sources, bounds)), num_parts)
    return bounds[graph.num_seeds :]


@compiled
def _add_bounds(num_seeds, indptr, sources, bounds, num_parts):
    """Add every node's bound, 1 for a seed, to those of its sources: they have higher numbers."""
    for node in range(len(bounds)):
        bounds[node] = min(num_parts, max(bounds[node], node < num_seeds))
        for e in range(indptr[node], indptr[node + 1]):
            bounds[sources[e]] += bounds[node]


@compiled
def _insert(pins, packed_nodes, part):
    """Insert the nodes of a part, none of which has an entry for it yet."""
    num_seeds, num_parts, row_starts, rows = pins
    for packed in packed_nodes:
        node, count = packed & 0xFFFFFFFF, packed >> 32
        begin, end = row_starts[node - num_seeds], row_starts[node - num_seeds + 1]
        if end - begin == num_parts:
            rows[begin + part] = count
        else:
            while rows[begin] != 0:
                begin += 1
            rows[begin] = (count << PART_BITS) | part


@compiled
def pin_count(pins, node, part):
    """Return how many pins the net of a node beyond the seeds has in a part."""
    num_seeds, num_parts, row_starts, rows = pins
    begin, end = row_starts[node - num_seeds], row_starts[node - num_seeds + 1]
    if end - begin == num_parts:
        return np.int64(rows[begin + part])
    for i in range(begin, end):
        entry = np.int64(rows[i])
        if entry == 0:
            return 0
        if entry & PART_MASK == part:
            return entry >> PART_BITS
    return 0


@compiled
def add_pin(pins, node, part):
    """Add a pin to a node's net in a part; return how many it has now: 1 if the node is new in the part."""
    num_seeds, num_parts, row_starts, rows = pins
    begin, end = row_starts[node - num_seeds], row_starts[node - num_seeds + 1]
    if end - begin == num_parts:
        rows[begin + part] += 1
        return np.int64(rows[begin + part])
    while rows[begin] != 0 and np.int64(rows[begin]) & PART_MASK != part:
        begin += 1
    entry = part if rows[begin] == 0 else np.int64(rows[begin])
    rows[begin] = entry + (1 << PART_BITS)
    return (entry >> PART_BITS) + 1


@compiled
def remove_pin(pins, node, part):
    """Remove a pin from a node's net in a part; return how many are left: 0 if the node has left the part."""
    num_seeds, num_parts, row_starts, rows = pins
    begin, end = row_starts[node - num_seeds], row_starts[node - num_seeds + 1]
    if end - begin == num_parts:
        rows[begin + part] -= 1
        return np.int64(rows[begin + part])
    while np.int64(rows[begin]) & PART_MASK != part:
        begin += 1
    rows[begin] = np.int64(rows[begin]) - (1 << PART_BITS)
    left = np.int64(rows[begin]) >> PART_BITS
    if left == 0:
        last = begin
        while last + 1 < end and rows[last + 1] != 0:
            last += 1
        rows[begin] = rows[last]
        rows[last] = 0
    return left


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
