"""Random edges between two kinds of nodes with given degrees, more of them within a class."""

from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.randomness import permutation
from workbench.kernels.hash import derive_key

_ROUNDS = 12


class Side(NamedTuple):
    """One kind of nodes.

    Args:
        degrees: int64 [nodes].
        classes: int64 [nodes].
    """

    degrees: Tensor
    classes: Tensor


def shuffled_stubs(degrees: Tensor, key: int) -> Tensor:
    """int64 [sum of degrees]: every node as often as its degree, in random order."""
    stubs = torch.arange(len(degrees)).repeat_interleave(degrees)
    return stubs[permutation(key, len(stubs))]


def _place_in_class(classes: Tensor) -> Tensor:
    """int64: how many entries of the same class stand before each one."""
    order = torch.argsort(classes, stable=True)
    ordered = classes[order]
    starts = torch.searchsorted(ordered, ordered)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order)) - starts
    return place


def _aligned(left: Tensor, right: Tensor, left_side: Side, right_side: Side, share: float) -> tuple[Tensor, Tensor]:
    """Pair the first `share` of the left stubs with right ones of their class while these last, the rest at random."""
    count = min(len(left), len(right))
    wanted = torch.full_like(left, -1)
    same = int(share * count)
    wanted[:same] = left_side.classes[left[:same]]
    offered = right_side.classes[right]
    classes = 1 + int(torch.maximum(wanted.max(), offered.max())) if count else 1
    supply = torch.bincount(offered, minlength=classes)
    demand_place, supply_place = _place_in_class(wanted), _place_in_class(offered)
    demand = torch.bincount(wanted[wanted >= 0], minlength=classes)
    served = (wanted >= 0) & (demand_place < supply[wanted.clamp(min=0)])
    taken = supply_place < demand[offered]
    by_left = torch.argsort(left_side.classes[left[served]], stable=True)
    by_right = torch.argsort(offered[taken], stable=True)
    rest = min(int((~served).sum()), int((~taken).sum()))
    lefts = torch.cat([left[served][by_left], left[~served][:rest]])
    return lefts, torch.cat([right[taken][by_right], right[~taken][:rest]])


def bipartite_edges(left: Side, right: Side, *, share: float, key: int) -> tuple[Tensor, Tensor]:
    """Different edges that meet the degrees of both sides; ends that only repeats would serve are matched anew.

    Args:
        left: nodes of one kind.
        right: nodes of the other, whose degrees have the same sum.
        share: of the edges to draw within a class, where the other side has stubs of it.
        key: of the random stream.

    Returns:
        int64 ids of the left and the right ends, by left end.
    """
    keys = torch.empty(0, dtype=torch.int64)
    width = len(right.degrees)
    for turn in range(_ROUNDS):
        ends = torch.div(keys, width, rounding_mode="floor"), keys % width
        lacking = [
            side.degrees - torch.bincount(found, minlength=len(side.degrees))
            for side, found in zip((left, right), ends, strict=True)
        ]
        if not int(lacking[0].sum()):
            break
        stubs = [shuffled_stubs(degrees, derive_key(key, turn, i)) for i, degrees in enumerate(lacking)]
        lefts, rights = _aligned(*stubs, left, right, share if turn == 0 else 0.0)
        keys = torch.unique(torch.cat([keys, lefts * width + rights]))
    return torch.div(keys, width, rounding_mode="floor"), keys % width
