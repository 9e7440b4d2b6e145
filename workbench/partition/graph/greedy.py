"""Greedy partition of nodes that arrive one after the other: each goes to the part of the largest objective."""

from typing import NamedTuple

import torch
from torch import Tensor

from workbench.kernels.jit import compiled

_UNASSIGNED = -1


class Objective(NamedTuple):
    """What a part P is worth to a node v: `|P ∩ Γ(v)| · factor[|P|] − cost[|P|]`.

    Args:
        factor: float64 [capacity + 1], by size of the part.
        cost: float64 [capacity + 1], by size of the part.
    """

    factor: Tensor
    cost: Tensor


class GreedyPartition:
    """Assigns nodes in one pass over edges, in O(num_nodes + num_parts) memory.

    A node arrives with a run of consecutive edges into it, and is assigned when the run ends: Γ(v) are the sources of
    the run that have been assigned before, a source of several edges counting as often. Later runs into the same node
    change nothing. Nodes without an edge into them are assigned after the last edge, in ascending order, with Γ(v)
    empty. Of equally good parts the one with fewest nodes is chosen, of these the first; full parts are never chosen.

    Args:
        num_nodes: number of nodes.
        num_parts: number of parts.
        objective: by which a part is chosen; the length of its tables minus one is the capacity of a part, which must
            provide room for all nodes.
    """

    def __init__(self, num_nodes: int, num_parts: int, objective: Objective) -> None:
        self._owner = torch.full((num_nodes,), _UNASSIGNED, dtype=torch.int32)
        self._sizes, self._counts = (torch.zeros(num_parts, dtype=torch.int64) for _ in range(2))
        self._arriving = torch.full((1,), _UNASSIGNED, dtype=torch.int64)
        tensors = (self._owner, self._sizes, self._counts, self._arriving, *objective)
        self._state = [tensor.numpy() for tensor in tensors]

    def add(self, src: Tensor, dst: Tensor) -> None:
        """Read the next edges.

        Args:
            src: int64 [num_edges], in [0, num_nodes).
            dst: int64 [num_edges], in [0, num_nodes).
        """
        _read_edges(src.numpy(), dst.numpy(), *self._state)

    def finish(self) -> Tensor:
        """Assign the nodes that are left and return the part of every node, int32 [num_nodes]."""
        _assign_rest(*self._state)
        return self._owner


@compiled
def _read_edges(src, dst, owner, sizes, counts, arriving, factor, cost):
    node = arriving[0]
    for e in range(len(dst)):
        if dst[e] != node:
            if node >= 0 and owner[node] < 0:
                _assign(node, owner, sizes, counts, factor, cost)
            node = dst[e]
        part = owner[src[e]]
        if part >= 0 and owner[node] < 0:
            counts[part] += 1
    arriving[0] = node


@compiled
def _assign_rest(owner, sizes, counts, arriving, factor, cost):
    if arriving[0] >= 0 and owner[arriving[0]] < 0:
        _assign(arriving[0], owner, sizes, counts, factor, cost)
    for node in range(len(owner)):
        if owner[node] < 0:
            _assign(node, owner, sizes, counts, factor, cost)


@compiled
def _assign(node, owner, sizes, counts, factor, cost):
    """Assign a node to the best part and clear the counts."""
    best, most = -1, 0.0
    for part in range(len(sizes)):
        size = sizes[part]
        if size + 1 < len(factor):
            value = counts[part] * factor[size] - cost[size]
            if best < 0 or value > most or (value == most and size < sizes[best]):
                best, most = part, value
        counts[part] = 0
    owner[node] = best
    sizes[best] += 1
