"""Balanced parts: an order cut into non-empty runs of equal weight, and `ByteCosts`, the bytes to balance."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.core.block import FLOATS
from workbench.core.errors import ID_DTYPES, check_vector


def cut_evenly(order: Tensor, num_parts: int, weights: Tensor | None = None) -> Tensor:
    """Cut an order into `num_parts` runs whose sizes differ by at most one, or whose weights are about equal.

    A run that would be empty, because a single item outweighs a run, receives an item of the longest run.

    Args:
        order: int64 [count], a permutation of range(count).
        num_parts: number of runs, 1 to count.
        weights: [count], non-negative weight of every item (not of every position); None: 1 each.

    >>> cut_evenly(torch.tensor([3, 1, 0, 2]), 2).tolist()
    [1, 0, 1, 0]
    """
    part = torch.empty_like(order)
    part[order] = _runs(order, num_parts, weights)
    return part if weights is None else fill_empty_parts(part, num_parts)


def _runs(order: Tensor, num_parts: int, weights: Tensor | None) -> Tensor:
    """Return the run of every position: the one that contains the midpoint of its item on the line of all weights."""
    if weights is None:
        return torch.arange(len(order), device=order.device) * num_parts // max(1, len(order))
    ordered = weights.to(order.device, torch.float64)[order]
    ends = ordered.cumsum(0)
    middle = (ends - ordered / 2) / ends[-1:]
    return (middle * num_parts).to(torch.int64).clamp_(0, num_parts - 1)


def fill_empty_parts(part: Tensor, num_parts: int) -> Tensor:
    """Move one node into every empty part, each time the last node of the currently largest part.

    Returns `part` itself if no part is empty.

    >>> fill_empty_parts(torch.tensor([0, 0, 0, 2]), 3).tolist()
    [0, 0, 1, 2]
    """
    sizes = torch.bincount(part, minlength=num_parts)
    empty = torch.nonzero(sizes == 0).view(-1).tolist()
    if not empty:
        return part
    part = part.clone()
    members = torch.argsort(part, stable=True).split(sizes.tolist())
    largest = [(-int(size), label) for label, size in enumerate(sizes) if size]
    heapq.heapify(largest)
    for label in empty:
        size, donor = heapq.heappop(largest)
        part[members[donor][-size - 1]] = label
        heapq.heappush(largest, (size + 1, donor))
    return part


def check_weights(weights: Tensor | None, count: int) -> Tensor | None:
    """Validate weights [count] to balance and return them on the CPU; None without weights or without seeds.

    Raises:
        TypeError: neither integers nor floats.
        ValueError: wrong length, a negative, infinite or NaN weight, or all weights zero.
    """
    check_vector("weights", weights, count, (*ID_DTYPES, *FLOATS))
    if weights is None or not count:
        return None
    low, high = (float(v) for v in torch.aminmax(weights))
    if not (low >= 0 and 0 < high < float("inf")):
        raise ValueError(f"weights range from {low} to {high}; they must be finite, non-negative and not all zero")
    if not bool(weights.sum(dtype=torch.float64).isfinite()):
        raise ValueError(f"weights up to {high:.4g} have an infinite sum; divide them by the largest")
    return weights.detach().cpu()


INPUT_BYTES = 512  # a row of 128 features in float32

EDGE_BYTES = 16  # an edge's index with its entry in the transposed block

_MAX_BYTES = 1e15  # of one node or edge; sums over a batch stay exact enough to compare


@dataclass(frozen=True)
class ByteCosts:
    """Device bytes that a micro-batch needs for each of its nodes and edges, by layer.

    `workbench.memory.byte_costs` computes those of a model; without costs, partitioners count 512 bytes per input node
    and 16 per edge.

    Args:
        per_node: non-negative bytes per node, one more than there are layers: per input node, 1 or more, then per
            destination of each layer, input layer first.
        per_edge: non-negative bytes per edge of each layer, input layer first.

    Raises:
        ValueError: negative or infinite bytes, less than 1 per input node, or another number of layers.
    """

    per_node: tuple[float, ...]
    per_edge: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("per_node", "per_edge"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
            _check(name, getattr(self, name))
        if len(self.per_node) and self.per_node[0] < 1:
            raise ValueError(f"per_node[0] is {self.per_node[0]}; the bytes per input node must be 1 or more")
        if len(self.per_node) != len(self.per_edge) + 1:
            raise ValueError(
                f"per_node has {len(self.per_node)} numbers and per_edge {len(self.per_edge)}; pass one number per "
                "layer for edges, and one more for nodes (the inputs)"
            )

    @staticmethod
    def default(num_layers: int) -> "ByteCosts":
        """Return 512 bytes per input node and 16 per edge of any layer."""
        return ByteCosts((INPUT_BYTES, *[0] * num_layers), (EDGE_BYTES,) * num_layers)


def _check(name: str, numbers: Sequence[float]) -> None:
    bad = [number for number in numbers if not 0 <= number <= _MAX_BYTES]
    if bad:
        raise ValueError(f"{name} contains {bad[0]}; bytes must be finite and non-negative, at most {_MAX_BYTES:.0e}")
