"""Cuts of a batch that fit: the whole batch partitioned anew for every number of parts, or only what overflows."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from workbench.core.minibatch import MiniBatch
from workbench.memory.planning.cut import Cut, Cutter
from workbench.memory.planning.room import Room
from workbench.memory.planning.search import smallest_fitting
from workbench.memory.record import MemoryEstimate

Piece = tuple[MiniBatch, MemoryEstimate]


_SMALLER = "use smaller fanouts, fewer layers or a narrower model"

Found = tuple[Cut, tuple[tuple[int, int], ...]]
"""A cut, and the numbers of parts that were tried with what the largest part needed."""


class Limit(NamedTuple):
    """The most parts there may be.

    Args:
        number: of them.
        what: of an error where they are too few: what then needs too much.
        remedy: likewise.
    """

    number: int
    what: str = "one output node alone needs"
    remedy: str = _SMALLER


def fitting_cut(cutter: Cutter, mb: MiniBatch, room: Room, strategy: str, limit: Limit) -> Found:
    """A cut of a batch into as few parts as it takes for all to fit.

    Args:
        cutter: that makes the parts.
        mb: the batch, of one seed or more.
        room: that each part must fit into.
        strategy: a name of `STRATEGIES`.
        limit: of the number of parts.

    Raises:
        CapacityError: they do not fit.
    """
    whole = cutter.whole(mb)
    room = replace(room, margin=max(room.margin, whole.estimates[0].error or 0.0))
    room.check_fixed(whole.estimates[0])
    if whole.peak_bytes <= room.nbytes:
        return whole, ((1, whole.peak_bytes),)
    _check_seeds(cutter, whole, room)
    cut, tried = STRATEGIES[strategy](cutter, whole, room, limit.number)
    if cut.peak_bytes > room.nbytes:
        raise room.lacks(limit.what, cut.peak_bytes, limit.remedy)
    return cut, tried


def _check_seeds(cutter: Cutter, whole: Cut, room: Room) -> None:
    """Where the neediest seed does not fit no partition needs to be made to know."""
    mb = whole.micro[0]
    alone = cutter.neediest_seeds(mb) if mb.num_seeds > 1 else whole
    if alone.peak_bytes > room.nbytes:
        node = int(alone.micro[alone.largest].seeds[0])
        raise room.lacks(f"output node {node} alone needs", alone.peak_bytes, _SMALLER)


def cut_evenly(cutter: Cutter, whole: Cut, room: Room, most: int) -> Found:
    """Partition the batch anew for every number tried.

    Args:
        cutter: that makes the parts.
        whole: the batch, which does not fit.
        room: that each part must fit into.
        most: parts.

    Returns:
        A cut into `most` parts where none fits.
    """
    last = best = whole
    tried = []

    def load(num_parts: int) -> float:
        nonlocal last, best
        last = whole if num_parts == 1 else cutter.cut(whole.micro[0], num_parts)
        tried.append((num_parts, last.peak_bytes))
        if last.peak_bytes <= room.nbytes:
            best = last  # smaller than any before: after one fits, only smaller numbers are tried
        return room.load(last.estimates[last.largest])

    return (last if smallest_fitting(load, most) is None else best), tuple(tried)


def cut_overflowing(cutter: Cutter, whole: Cut, room: Room, most: int) -> Found:
    """Partition the batch once, in as many parts as it has room for, and then only what does not fit, by itself.

    Parts read some inputs twice, so most of the first parts do not fit; parts of these are the smaller for it.

    Args:
        cutter: that makes the parts.
        whole: the batch, which does not fit.
        room: that each part must fit into.
        most: parts.

    Returns:
        A cut of which some parts do not fit where `most` parts are too few, or a part can't be cut.
    """
    mb, parts = whole.micro[0], min(most, math.ceil(room.load(whole.estimates[0])))
    cuts = [whole]
    if parts > 1:
        cuts.append(cutter.cut(mb, parts))
    while (further := _cut_again(cutter, cuts[-1], room)) is not None and len(further.micro) <= most:
        cuts.append(further)
    return cuts[-1], tuple((len(cut.micro), cut.peak_bytes) for cut in cuts)


def _cut_again(cutter: Cutter, cut: Cut, room: Room) -> Cut | None:
    """Every part that does not fit cut in at least two; None if none can be."""
    pieces = [
        piece
        for position, (micro, estimate) in enumerate(zip(cut.micro, cut.estimates, strict=True))
        for piece in _pieces(cutter, micro, estimate, room, first=position == 0)
    ]
    if len(pieces) == len(cut.micro):
        return None
    micro, estimates = zip(*pieces, strict=True)
    return Cut(micro, estimates)


def _pieces(cutter: Cutter, micro: MiniBatch, estimate: MemoryEstimate, room: Room, *, first: bool) -> list[Piece]:
    if room.fits(estimate) or micro.num_seeds == 1 or micro.parent is None:
        return [(micro, estimate)]
    cut = cutter.cut(micro, min(micro.num_seeds, max(2, math.ceil(room.load(estimate)))), first=first)
    parts = [replace(part, parent=micro.parent[part.parent]) for part in cut.micro]
    return list(zip(parts, cut.estimates, strict=True))


STRATEGIES: Mapping[str, Callable[[Cutter, Cut, Room, int], Found]] = MappingProxyType(
    {"even": cut_evenly, "split": cut_overflowing}
)
