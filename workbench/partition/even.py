"""Cutting an order into parts of equal weight, none of them empty."""

import heapq

import torch
from torch import Tensor


def cut_evenly(order: Tensor, num_parts: int, weights: Tensor | None = None) -> Tensor:
    """Cut an order into `num_parts` runs whose sizes differ by at most one, or whose weights are about equal.

    A run that would be empty, because one item weighs more than a run, gets an item of the longest.

    Args:
        order: int64 [count], a permutation of range(count).
        num_parts: runs, 1 to count.
        weights: [count], non-negative weight of every item (not of every position); None: 1 each.

    Returns:
        int64 [count]: the run of every item.

    >>> cut_evenly(torch.tensor([3, 1, 0, 2]), 2).tolist()
    [1, 0, 1, 0]
    """
    part = torch.empty_like(order)
    part[order] = _runs(order, num_parts, weights)
    return part if weights is None else fill_empty_parts(part, num_parts)


def _runs(order: Tensor, num_parts: int, weights: Tensor | None) -> Tensor:
    """The run of every position: where the middle of its item lies on the line of all weights."""
    if weights is None:
        return torch.arange(len(order), device=order.device) * num_parts // max(1, len(order))
    ordered = weights.to(order.device, torch.float64)[order]
    ends = ordered.cumsum(0)
    middle = (ends - ordered / 2) / ends[-1:]
    return (middle * num_parts).to(torch.int64).clamp_(0, num_parts - 1)


def fill_empty_parts(part: Tensor, num_parts: int) -> Tensor:
    """Give every empty part one node of what is then the largest part: its last.

    Args:
        part: int64 [n], in [0, num_parts).
        num_parts: at most n.

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
        size, giver = heapq.heappop(largest)
        part[members[giver][-size - 1]] = label
        heapq.heappush(largest, (size + 1, giver))
    return part
