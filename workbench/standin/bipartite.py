"""Random bipartite graphs with given degrees and a given share of edges within a class."""

from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.randomness import permutation
from workbench.kernels.hash import derive_key

_ROUNDS = 12


class Side(NamedTuple):
    """The nodes of one side.

    Args:
        degrees: int64 [nodes].
        classes: int64 [nodes].
    """

    degrees: Tensor
    classes: Tensor


def shuffled_stubs(degrees: Tensor, key: int) -> Tensor:
    """Repeat every node by its degree and shuffle: int64 [sum of degrees]."""
    stubs = torch.arange(len(degrees)).repeat_interleave(degrees)
    return stubs[permutation(key, len(stubs))]


def _rank_in_class(classes: Tensor) -> Tensor:
    """Count the entries of the same class before each entry: int64."""
    order = torch.argsort(classes, stable=True)
    ordered = classes[order]
    starts = torch.searchsorted(ordered, ordered)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - starts
    return rank


def _match_stubs(left: Tensor, right: Tensor, left_side: Side, right_side: Side, share: float) -> tuple[Tensor, Tensor]:
    """Match the first `share` of the left stubs with right stubs of their class, if there are any, others at random."""
    count = min(len(left), len(right))
    wanted = torch.full_like(left, -1)
    num_same = int(share * count)
    wanted[:num_same] = left_side.classes[left[:num_same]]
    offered = right_side.classes[right]
    classes = 1 + int(torch.maximum(wanted.max(), offered.max())) if count else 1
    supply = torch.bincount(offered, minlength=classes)
    demand_rank, supply_rank = _rank_in_class(wanted), _rank_in_class(offered)
    demand = torch.bincount(wanted[wanted >= 0], minlength=classes)
    served = (wanted >= 0) & (demand_rank < supply[wanted.clamp(min=0)])
    taken = supply_rank < demand[offered]
    by_left = torch.argsort(left_side.classes[left[served]], stable=True)
    by_right = torch.argsort(offered[taken], stable=True)
    rest = min(int((~served).sum()), int((~taken).sum()))
    lefts = torch.cat([left[served][by_left], left[~served][:rest]])
    return lefts, torch.cat([right[taken][by_right], right[~taken][:rest]])


def bipartite_edges(left: Side, right: Side, *, share: float, key: int) -> tuple[Tensor, Tensor]:
    """Match the stubs of both sides; duplicate edges are dropped and their stubs matched again, for up to 12 rounds.

    Args:
        left: nodes of one side.
        right: nodes of the other side, whose degrees have the same sum.
        share: share of the edges within a class, as far as the other side has stubs of the class.
        key: key of the random stream.

    Returns:
        int64 [edges] each: left and right ends of distinct edges, sorted by left end.
    """
    keys = torch.empty(0, dtype=torch.int64)
    width = len(right.degrees)
    for turn in range(_ROUNDS):
        ends = torch.div(keys, width, rounding_mode="floor"), keys % width
        deficit = [
            side.degrees - torch.bincount(matched, minlength=len(side.degrees))
            for side, matched in zip((left, right), ends, strict=True)
        ]
        if not int(deficit[0].sum()):
            break
        stubs = [shuffled_stubs(degrees, derive_key(key, turn, i)) for i, degrees in enumerate(deficit)]
        lefts, rights = _match_stubs(*stubs, left, right, share if turn == 0 else 0.0)
        keys = torch.unique(torch.cat([keys, lefts * width + rights]))
    return torch.div(keys, width, rounding_mode="floor"), keys % width
