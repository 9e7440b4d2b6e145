"""Cutting an order into parts of equal weight."""

import torch
from torch import Tensor


def cut_evenly(order: Tensor, num_parts: int, weights: Tensor | None = None) -> Tensor:
    """Cut an order into `num_parts` runs whose sizes differ by at most one, or whose weights are about equal.

    Args:
        order: int64 [count], a permutation of range(count).
        num_parts: runs, at least 1.
        weights: [count], non-negative weight of every item (not of every position); None: 1 each.

    Returns:
        int64 [count]: the run of every item.

    >>> cut_evenly(torch.tensor([3, 1, 0, 2]), 2).tolist()
    [1, 0, 1, 0]
    """
    part = torch.empty_like(order)
    part[order] = _runs(order, num_parts, weights)
    return part


def _runs(order: Tensor, num_parts: int, weights: Tensor | None) -> Tensor:
    """The run of every position: where the middle of its item lies on the line of all weights."""
    if weights is None:
        return torch.arange(len(order), device=order.device) * num_parts // max(1, len(order))
    ordered = weights.to(order.device, torch.float64)[order]
    ends = ordered.cumsum(0)
    middle = (ends - ordered / 2) / ends[-1:]
    return (middle * num_parts).to(torch.int64).clamp_(0, num_parts - 1)
