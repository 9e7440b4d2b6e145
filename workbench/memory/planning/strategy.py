"""Cuts of a batch that fit: the whole batch partitioned anew for every number of parts, or only what overflows."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from workbench.core.minibatch import MiniBatch
from workbench.memory.planning.alone import neediest_alone, too_needy
from workbench.memory.planning.cut import Cut, Cutter
from workbench.memory.planning.room import Room
from workbench.memory.planning.search import smallest_fitting
from workbench.memory.record import MemoryEstimate

Piece = tuple[MiniBatch, MemoryEstimate]

_MOST_ERROR = 0.25  # of parts held out; where it was larger, whole batches were measured at nine times the estimate
_MOST_SKIPPED = 16
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
        ValueError: estimates are too far off to plan with.
    """
    whole = cutter.whole(mb)
    room = replace(room, error=_usable_error(whole.estimates[0]))
    if room.fits(whole.estimates[0]):
        return whole, ((1, whole.peak_bytes),)
    _check(cutter, whole, room, limit)
    cut, tried = STRATEGIES[strategy](cutter, whole, room, limit.number)
    largest = cut.estimates[cut.largest]
    if not room.fits(largest):
        enough = min(whole, cut, key=lambda tried: tried.peak_bytes)
        raise room.lacks(
            limit.what, cut.peak_bytes, largest.fixed_bytes, limit.remedy, enough.estimates[enough.largest]
        )
    return cut, tried


def _usable_error(estimate: MemoryEstimate) -> float:
    if (estimate.error or 0.0) > _MOST_ERROR:
        raise ValueError(
            f"the model had to be traced, and estimates of parts held out were off by up to {estimate.error:.0%}, more "
            f"than the {_MOST_ERROR:.0%} with which a plan can be trusted: train with recover=Recovery(), which cuts a "
            "batch where memory runs out, or cut it into a number of parts of your own (partition_batch)"
        )
    return estimate.error or 0.0


def _check(cutter: Cutter, whole: Cut, room: Room, limit: Limit) -> None:
    """Refuse what no partition needs to be made for to know that it does not fit."""
    mb, estimate = whole.micro[0], whole.estimates[0]
    fixed, step = estimate.fixed_bytes, estimate.phase_bytes["step"]
    narrower = "use a narrower model or optimizer='sgd'"
    if room.claim(fixed, fixed) >= room.capacity_bytes:
        what = "parameters and optimizer state alone take"
        raise room.lacks(what, fixed, fixed, narrower, _enough(cutter, whole, limit))
    if room.claim(step, fixed) > room.capacity_bytes:
        what = "the optimizer's step takes, into however many parts the batch is cut,"
        raise room.lacks(what, step, fixed, narrower, _enough(cutter, whole, limit))
    if too_needy(cutter, mb, room):
        alone = neediest_alone(cutter, mb)
        after = "" if mb.num_seeds == 1 else ", after other parts,"
        what = f"output node {int(alone.micro[0].seeds[0])} alone{after} needs"
        raise room.lacks(what, alone.peak_bytes, fixed, _SMALLER, _enough(cutter, whole, limit))


def _enough(cutter: Cutter, whole: Cut, limit: Limit) -> MemoryEstimate:
    """What must fit for a plan to be found: the neediest part of the finest cut there may be, or the whole batch."""
    mb = whole.micro[0]
    if limit.number == 1:
        return whole.estimates[0]
    finest = neediest_alone(cutter, mb) if limit.number == mb.num_seeds else cutter.cut(mb, limit.number)
    least = min(whole, finest, key=lambda cut: cut.peak_bytes)
    return least.estimates[least.largest]


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
    best = finest = whole
    tried = []

    def load(num_parts: int) -> float:
        nonlocal best, finest
        cut = whole if num_parts == 1 else cutter.cut(whole.micro[0], num_parts)
        tried.append((num_parts, cut.peak_bytes))
        if num_parts == most:
            finest = cut
        if room.fits(cut.estimates[cut.largest]):
            best = cut  # smaller than any before: after one fits, only smaller numbers are tried
        return room.load(cut.estimates[cut.largest])

    if smallest_fitting(load, most) is None and most == whole.micro[0].num_seeds:
        any(load(number) <= 1 for number in _skipped([number for number, _ in tried]))
    return (finest if best is whole else best), tuple(tried)


def _skipped(tried: Sequence[int]) -> Sequence[int]:
    """Numbers between, evenly: a needy seed that does not fit alone may fit among the first, which finds no gradients.

    >>> _skipped([1, 2, 5])
    [3, 4]
    """
    between = [number for number in range(1, max(tried)) if number not in tried]
    return between[:: math.ceil(len(between) / _MOST_SKIPPED) or 1]


def cut_overflowing(cutter: Cutter, whole: Cut, room: Room, most: int) -> Found:
    """Partition the batch once, in as many parts as it has room for, and then only what does not fit, by itself.

    Parts read some inputs twice, so most of the first parts do not fit; parts of these are the smaller for it. Where
    that takes too many parts, the batch is cut evenly after all.

    Args:
        cutter: that makes the parts.
        whole: the batch, which does not fit.
        room: that each part must fit into.
        most: parts.

    Returns:
        A cut into `most` parts where neither fits.
    """
    mb, parts = whole.micro[0], min(most, math.ceil(room.load(whole.estimates[0])))
    cuts = [whole]
    if parts > 1:
        cuts.append(cutter.cut(mb, parts))
    while (finer := _cut_again(cutter, cuts[-1], room)) is not None and len(finer.micro) <= most:
        cuts.append(finer)
    tried = tuple((len(cut.micro), cut.peak_bytes) for cut in cuts)
    if room.fits(cuts[-1].estimates[cuts[-1].largest]):
        return cuts[-1], tried
    cut, further = cut_evenly(cutter, whole, room, most)
    return cut, tried + further[1:]


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
