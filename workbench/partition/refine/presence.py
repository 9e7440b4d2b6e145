"""Which parts need a node of the computation trees, and how many of its parents there do.

Every output is in its own part. A node farther out is in a part while one of its parents is; the count of those says
when the last one leaves. Nodes of the first hop have rows of (part, count), which a sweep reads whole; those farther
out are only asked for one part at a time, and stand in one hash table. So all is linear in the nodes of the
micro-batches, whatever the number of parts.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import CapacityError
from workbench.core.units import format_bytes
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.partition.refine.trees import Trees, parents, self_child

MOST_PARTS = 1 << 16
PART_BITS = 16  # of a row's entry: count above, part below
_COUNT_BITS = 24  # of the table's: key above, count below
PART_MASK, _COUNT_MASK = (1 << PART_BITS) - 1, (1 << _COUNT_BITS) - 1


@dataclass(frozen=True, eq=False)
class Presence:
    """Counts of parents by node and part; the kernels of this file change them in place.

    Args:
        bounds: int64 [2], the numbers of the first node one hop out and two hops out.
        num_parts: the number of parts.
        start: int64 [nodes of the first hop + 1], where rows begin.
        slots: int64, entries of rows: those in use first, zeros behind them.
        table: int64 [a power of two], entries of nodes farther out; 0 is free.
        filled: int64 [1], entries of the table that are not free.
        part_bytes: float64 [num_parts], the cost of every part.
    """

    bounds: Any
    num_parts: int
    start: Any
    slots: Any
    table: Any
    filled: Any
    part_bytes: Any

    def arrays(self) -> tuple[Any, ...]:
        """The fields as kernels take them."""
        return self.bounds, self.num_parts, self.start, self.slots, self.table, self.filled


def count_presence(trees: Trees, part: Tensor, num_parts: int, max_bytes: int) -> Presence:
    """Count for a partition of the outputs.

    Args:
        trees: of the batch.
        part: int64 [num_outputs].
        num_parts: the number of parts.
        max_bytes: memory that it may take.

    Raises:
        CapacityError: it would take more, or more parts or parents than entries can hold.
    """
    reached, part_bytes = _reach_all(trees, part, num_parts)
    num_deep = len(trees.cost) - int(trees.first[min(2, len(trees.first) - 1)])
    edges = parents(trees)
    capacities = edges[int(trees.first[1]) : int(trees.first[min(2, len(trees.first) - 1)])].clamp(max=num_parts)
    start = torch.zeros(len(capacities) + 1, dtype=torch.int64)
    torch.cumsum(capacities, 0, out=start[1:])
    entries = sum(map(len, reached))
    size = 1 << max(4, (2 * entries + num_parts).bit_length())  # of any move all nodes may be new
    _check(edges, num_deep * num_parts, num_parts, 8 * (entries + size + int(start[-1])), max_bytes)
    presence = Presence(
        trees.first[[1, min(2, len(trees.first) - 1)]].numpy(),
        num_parts,
        start.numpy(),
        np.zeros(int(start[-1]), np.int64),
        np.zeros(size, np.int64),
        np.zeros(1, np.int64),
        part_bytes,
    )
    for label, nodes in enumerate(reached):
        _enter(presence.arrays(), nodes, label)
    return presence


def _check(edges: Tensor, keys: int, num_parts: int, needed: int, limit: int) -> None:
    if needed > limit:
        raise CapacityError(
            f"the refinement would take {format_bytes(needed)}, more than the {format_bytes(limit)} it may: use fewer "
            "parts, a method without it (star), or raise max_bytes"
        )
    if num_parts > MOST_PARTS or keys >= 1 << (63 - _COUNT_BITS) or (len(edges) and int(edges.max()) > _COUNT_MASK):
        raise CapacityError(
            f"the refinement counts up to {MOST_PARTS:,} parts, {1 << (63 - _COUNT_BITS):,} nodes times parts and "
            f"{_COUNT_MASK:,} parents of a node, not {num_parts:,}, {keys:,} and {int(edges.max()):,}: use a method "
            "without it (star), fewer parts or a smaller batch"
        )


def _reach_all(trees: Trees, part: Tensor, num_parts: int) -> tuple[list[Any], Any]:
    """For every part its nodes beyond the outputs, each as count of parents and number, and what it costs."""
    members = torch.argsort(part, stable=True).numpy()
    bounds = torch.zeros(num_parts + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(part, minlength=num_parts), 0, out=bounds[1:])
    arrays, nodes = trees.arrays(), len(trees.cost)
    reached: list[Any] = [None] * num_parts
    part_bytes = np.zeros(num_parts)

    def parts(lo: int, hi: int) -> None:
        counts, found = np.zeros(nodes, np.int32), np.empty(nodes, np.int64)
        for label in range(lo, hi):
            outputs = members[bounds[label] : bounds[label + 1]]
            end, part_bytes[label] = _reach(arrays, outputs, counts, found)
            reached[label] = found[len(outputs) : end].copy()

    parallel_rows(parts, num_parts, min_rows=1)
    return reached, part_bytes


@compiled
def _reach(trees, outputs, counts, found):
    """Nodes in order of hops; `counts` is zero before and after. Returns where they end and their cost."""
    first, indptr, children, cost = trees
    end, total = len(outputs), 0.0
    found[:end] = outputs
    head = 0
    while head < end:
        node = found[head]
        head += 1
        total += cost[node]
        if node < len(indptr) - 1:
            for e in range(indptr[node] - 1, indptr[node + 1]):
                child = self_child(first, node) if e < indptr[node] else children[e]
                if counts[child] == 0:
                    found[end] = child
                    end += 1
                counts[child] += 1
    for i in range(len(outputs), end):
        node = found[i]
        found[i] = (np.int64(counts[node]) << 32) | node
        counts[node] = 0
    return end, total


@compiled
def _enter(presence, nodes, part):
    """Note the nodes of a part, none of which is noted for it yet."""
    bounds, num_parts, start, slots, table, filled = presence
    for packed in nodes:
        node, count = packed & 0xFFFFFFFF, packed >> 32
        if node < bounds[1]:
            i = start[node - bounds[0]]
            while slots[i] != 0:
                i += 1
            slots[i] = (count << PART_BITS) | part
        else:
            key = (node - bounds[1]) * num_parts + part + 1
            table[_place(table, key)] = (key << _COUNT_BITS) | count
            filled[0] += 1


@compiled
def _place(table, key):
    """Where an entry stands, or may be put. Keys stay when their count falls to 0."""
    mask = len(table) - 1
    i = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
    while table[i] != 0 and table[i] >> _COUNT_BITS != key:
        i = (i + 1) & mask
    return i


@compiled
def count_in(presence, node, part):
    """How many parents of a node beyond the outputs are in a part."""
    bounds, num_parts, start, slots, table, _ = presence
    if node >= bounds[1]:
        return table[_place(table, (node - bounds[1]) * num_parts + part + 1)] & _COUNT_MASK
    row = node - bounds[0]
    for i in range(start[row], start[row + 1]):
        if slots[i] == 0:
            return 0
        if slots[i] & PART_MASK == part:
            return slots[i] >> PART_BITS
    return 0


@compiled
def add_parent(presence, node, part):
    """Count one parent more; whether the node is new in the part."""
    bounds, num_parts, start, slots, table, filled = presence
    if node >= bounds[1]:
        key = (node - bounds[1]) * num_parts + part + 1
        i = _place(table, key)
        if table[i] == 0:
            table[i] = key << _COUNT_BITS
            filled[0] += 1
        table[i] += 1
        return table[i] & _COUNT_MASK == 1
    i = start[node - bounds[0]]
    while slots[i] != 0 and slots[i] & PART_MASK != part:
        i += 1
    if slots[i] == 0:
        slots[i] = part
    slots[i] += 1 << PART_BITS
    return slots[i] >> PART_BITS == 1


@compiled
def drop_parent(presence, node, part):
    """Count one parent less; whether the node has left the part."""
    bounds, num_parts, start, slots, table, _ = presence
    if node >= bounds[1]:
        i = _place(table, (node - bounds[1]) * num_parts + part + 1)
        table[i] -= 1
        return table[i] & _COUNT_MASK == 0
    i = start[node - bounds[0]]
    while slots[i] & PART_MASK != part:
        i += 1
    slots[i] -= 1 << PART_BITS
    if slots[i] >> PART_BITS != 0:
        return False
    last, end = i, start[node - bounds[0] + 1]
    while last + 1 < end and slots[last + 1] != 0:
        last += 1
    slots[i] = slots[last]
    slots[last] = 0
    return True
