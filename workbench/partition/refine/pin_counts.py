"""Pin counts per node and part: how many nodes of a part read each node of the computation graph.

Every node beyond the seeds is a net; its pins are the nodes of the previous hop that read it. A part contains a node
while the node has a pin in the part, so the count tells when the last one leaves. Nodes of the first hop have rows of
(part, count) entries, which a pass scans; nodes of further hops are looked up for one part at a time, in one hash
table. Memory is linear in the nodes of the micro-batches, whatever the number of parts.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import CapacityError
from workbench.core.units import format_bytes
from workbench.kernels.jit import compiled
from workbench.partition.refine.computation_graph import ComputationGraph, net_sizes
from workbench.partition.refine.part_nodes import nodes_by_part

MAX_PARTS = 1 << 16
PART_BITS = 16  # of a row's entry: count in the high bits, part in the low ones
_COUNT_BITS = 24  # of a table's entry: key in the high bits, count in the low ones
PART_MASK, _COUNT_MASK = (1 << PART_BITS) - 1, (1 << _COUNT_BITS) - 1


@dataclass(frozen=True, eq=False)
class PinCounts:
    """Pin counts by node and part; the kernels of this module update the arrays in place.

    Args:
        bounds: int64 [2], the first node one hop and two hops from the seeds.
        num_parts: number of parts.
        row_starts: int64 [nodes of the first hop + 1], where the rows of `rows` begin.
        rows: int64, entries per node of the first hop, zeros after the last one in use.
        table: int64 [a power of two], open-addressing hash table of the nodes of further hops; 0 is a free slot.
        filled: int64 [1], slots of the table in use.
        part_bytes: float64 [num_parts], bytes of every part.
    """

    bounds: Any
    num_parts: int
    row_starts: Any
    rows: Any
    table: Any
    filled: Any
    part_bytes: Any

    def arrays(self) -> tuple[Any, ...]:
        """Return the fields that kernels read and update."""
        return self.bounds, self.num_parts, self.row_starts, self.rows, self.table, self.filled


def count_pins(graph: ComputationGraph, part: Tensor, num_parts: int, max_bytes: int) -> PinCounts:
    """Count the pins of every node in every part.

    Args:
        graph: the computation graph of a batch.
        part: int64 [num_seeds], in [0, num_parts).
        num_parts: number of parts.
        max_bytes: memory that the counts may use.

    Returns:
        The counts, and the bytes of every part.

    Raises:
        CapacityError: they would use more, or there are more parts or pins than an entry can represent.
    """
    members, part_bytes = nodes_by_part(graph, part, num_parts)
    second_hop = int(graph.hop_starts[min(2, len(graph.hop_starts) - 1)])
    num_deep = len(graph.node_bytes) - second_hop
    sizes = net_sizes(graph)
    row_lengths = sizes[int(graph.hop_starts[1]) : second_hop].clamp(max=num_parts)
    row_starts = torch.zeros(len(row_lengths) + 1, dtype=torch.int64)
    torch.cumsum(row_lengths, 0, out=row_starts[1:])
    entries = sum(map(len, members))
    slots = 1 << max(4, (2 * entries + num_parts).bit_length())  # one move may add all nodes of a part
    _check(sizes, num_deep * num_parts, num_parts, 8 * (entries + slots + int(row_starts[-1])), max_bytes)
    pins = PinCounts(
        graph.hop_starts[[1, min(2, len(graph.hop_starts) - 1)]].numpy(),
        num_parts,
        row_starts.numpy(),
        np.zeros(int(row_starts[-1]), np.int64),
        np.zeros(slots, np.int64),
        np.zeros(1, np.int64),
        part_bytes,
    )
    for label, packed in enumerate(members):
        _insert(pins.arrays(), packed, label)
    return pins


def _check(sizes: Tensor, keys: int, num_parts: int, required: int, limit: int) -> None:
    if required > limit:
        raise CapacityError(
            f"the refinement requires {format_bytes(required)}, more than the limit of {format_bytes(limit)}: use "
            "fewer parts, a method without refinement (star), or raise max_bytes"
        )
    if num_parts > MAX_PARTS or keys >= 1 << (63 - _COUNT_BITS) or (len(sizes) and int(sizes.max()) > _COUNT_MASK):
        raise CapacityError(
            f"the refinement supports up to {MAX_PARTS:,} parts, {1 << (63 - _COUNT_BITS):,} nodes times parts and "
            f"{_COUNT_MASK:,} pins per net, not {num_parts:,}, {keys:,} and {int(sizes.max()):,}: use a method "
            "without refinement (star), fewer parts or a smaller batch"
        )


@compiled
def _insert(pins, packed_nodes, part):
    """Insert the nodes of a part, none of which has an entry for it yet."""
    bounds, num_parts, row_starts, rows, table, filled = pins
    for packed in packed_nodes:
        node, count = packed & 0xFFFFFFFF, packed >> 32
        if node < bounds[1]:
            i = row_starts[node - bounds[0]]
            while rows[i] != 0:
                i += 1
            rows[i] = (count << PART_BITS) | part
        else:
            key = (node - bounds[1]) * num_parts + part + 1
            table[_slot(table, key)] = (key << _COUNT_BITS) | count
            filled[0] += 1


@compiled
def _slot(table, key):
    """Return the slot of a key, or the free slot for it (linear probing). Keys remain when their count falls to 0."""
    mask = len(table) - 1
    i = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
    while table[i] != 0 and table[i] >> _COUNT_BITS != key:
        i = (i + 1) & mask
    return i


@compiled
def pin_count(pins, node, part):
    """Return how many pins the net of a node beyond the seeds has in a part."""
    bounds, num_parts, row_starts, rows, table, _ = pins
    if node >= bounds[1]:
        return table[_slot(table, (node - bounds[1]) * num_parts + part + 1)] & _COUNT_MASK
    row = node - bounds[0]
    for i in range(row_starts[row], row_starts[row + 1]):
        if rows[i] == 0:
            return 0
        if rows[i] & PART_MASK == part:
            return rows[i] >> PART_BITS
    return 0


@compiled
def add_pin(pins, node, part):
    """Add a pin to a node's net in a part; return whether the node is new in the part."""
    bounds, num_parts, row_starts, rows, table, filled = pins
    if node >= bounds[1]:
        key = (node - bounds[1]) * num_parts + part + 1
        i = _slot(table, key)
        if table[i] == 0:
            table[i] = key << _COUNT_BITS
            filled[0] += 1
        table[i] += 1
        return table[i] & _COUNT_MASK == 1
    i = row_starts[node - bounds[0]]
    while rows[i] != 0 and rows[i] & PART_MASK != part:
        i += 1
    if rows[i] == 0:
        rows[i] = part
    rows[i] += 1 << PART_BITS
    return rows[i] >> PART_BITS == 1


@compiled
def remove_pin(pins, node, part):
    """Remove a pin from a node's net in a part; return whether the node has left the part."""
    bounds, num_parts, row_starts, rows, table, _ = pins
    if node >= bounds[1]:
        i = _slot(table, (node - bounds[1]) * num_parts + part + 1)
        table[i] -= 1
        return table[i] & _COUNT_MASK == 0
    i = row_starts[node - bounds[0]]
    while rows[i] & PART_MASK != part:
        i += 1
    rows[i] -= 1 << PART_BITS
    if rows[i] >> PART_BITS != 0:
        return False
    last, end = i, row_starts[node - bounds[0] + 1]
    while last + 1 < end and rows[last + 1] != 0:
        last += 1
    rows[i] = rows[last]
    rows[last] = 0
    return True
