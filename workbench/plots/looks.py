"""The look of every method, which is the same in all figures of the product."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The colour-blind-safe palette of Okabe and Ito, without its yellow, which is too faint on white."""

EXTRA = ("#332288", "#882255", "#44AA99", "#999933", "#AA4499", "#117733", "#661100")
"""Further colours of methods, from Tol's muted palette, for plots with more methods than PALETTE has colours."""

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")
DASHES = ("solid", "dash", "dashdot", "longdash", "dot", "longdashdot", "solid")


@dataclass(frozen=True)
class Look:
    """Colour, dash and symbol of a series; the symbol alone identifies it, and so do colour and dash together.

    Args:
        name: text of the legend entry.
        color: "#rrggbb".
        dash: one of plotly's line dashes.
        symbol: one of plotly's marker symbols; the suffix "-open" makes it hollow.
    """

    name: str
    color: str
    dash: str
    symbol: str


def _look(name: str, place: int, dash: str | None = None, symbol: str | None = None) -> Look:
    color = (*PALETTE, *EXTRA)[place]
    return Look(name, color, dash or DASHES[place % 7], symbol or SYMBOLS[place % 7])


_METHOD_LOOKS = {
    # partitioners of batches and graphs, and placements of rows: 14 + 4 methods, no two of one colour and symbol
    "reg": _look("REG", 0),
    "range": _look("range", 1),
    "random": _look("random", 2),
    "metis": _look("METIS", 3),
    "cluster": _look("cluster", 4),
    "reg_unweighted": _look("REG, unweighted", 5),
    "reg_normalized": _look("REG, normalized", 7, "dash", "hourglass"),
    "star": _look("star", 6),
    "star_refined": _look("star, refined", 10, "solid", "triangle-down"),
    "hypergraph": _look("hypergraph", 8, "solid", "pentagon"),
    "hypergraph_deep": _look("hypergraph, all hops", 9, "dash", "hexagon"),
    "hypergraph_refined": _look("hypergraph, refined", 11, "solid", "bowtie"),
    "auto": _look("auto", 12, "dash", "star-square"),
    "fast": _look("fast", 13, "dot", "star-triangle-up"),
    "pagraph": _look("PaGraph", 12, "dashdot", "cross"),
    "hottest": _look("hottest", 4, "dot", "x"),
    "algorithm-1": _look("Algorithm 1", 0, "dash", "hexagram"),
    "search": _look("search", 13, "dash", "star"),
    "naive": _look("naive", 1, "dot", "circle-cross"),
    # ways to train
    "micro-batch": _look("micro-batches", 0),
    "mini-batch": _look("mini-batches", 1),
    "whole batch": Look("whole batch", PALETTE[6], "dot", SYMBOLS[6]),  # dotted: an equal solid line shows through
    "independent": _look("independent", 0),
    "cooperative": _look("cooperative", 1),
    "one by one": _look("one by one", 0),
    "macrobatch": _look("macrobatch", 1),
    "macrobatch + cache": _look("macrobatch + cache", 2),
    # samplers
    "RW": _look("RW", 4),
    "NS": _look("NS", 0),
    "LABOR-0": _look("LABOR-0", 1),
    "LABOR-*": _look("LABOR-*", 2),
    "LAS": _look("LAS", 3),
    "LAS, published": _look("LAS, published", 8),
    "LADIES + LAS": _look("LADIES + LAS", 9),
    "NeighborSampler": _look("NeighborSampler", 0),
    "DENSE": _look("DENSE", 5),
    # training from disk, and its peers
    "in memory": _look("in memory", 0),
    "on disk": _look("on disk", 1),
    "COMET": _look("COMET", 1),
    "BETA": _look("BETA", 2),
    "balanced": _look("balanced", 3),
    "DGL": _look("DGL", 4),
    "PyG": _look("PyG", 5),
    # cache policies
    "lru": _look("LRU", 0),
    "fifo": _look("FIFO", 1),
    "clock": _look("CLOCK", 2),
    "sieve": _look("SIEVE", 3),
    "s3-fifo": _look("S3-FIFO", 4),
    "static": _look("static", 5),
    "belady": _look("Belady", 6),
    "belady-bypass": _look("Belady, bypass", 6, "dot", "star-diamond"),
}
_BY_TEXT = {key: name for name, look in _METHOD_LOOKS.items() for key in (name.casefold(), look.name.casefold())}
_VARIANT = re.compile(r"^(?P<method>.+?)(?P<plain> \(total\))?(?: \(.+\))?$")


def looks(groups: Iterable[Any]) -> dict[Any, Look]:
    """Assign a look to every group: known methods look the same in all figures, others get the remaining colours.

    A method may be named as in the library or as people write it ("metis", "METIS"). A variant, "reg (largest)", has
    its method's colour and a hollow symbol.

    Args:
        groups: distinct values of a table's column.

    Returns:
        Group → look, known methods first, in a fixed order.
    """
    groups = list(groups)
    found = {group: look for group in groups if (look := _known(group)) is not None}
    known = dict(sorted(found.items(), key=lambda item: _place(item[1])))
    taken = {look.color for look in known.values()}
    free = [place for place in range(7) if PALETTE[place] not in taken] or list(range(7))
    others = [group for group in groups if group not in known]
    return known | {group: _look(str(group), free[i % len(free)]) for i, group in enumerate(others)}


def _known(group: Any) -> Look | None:
    """The look of a method or of a variant of one."""
    if not isinstance(group, str):
        return None
    if (name := _BY_TEXT.get(group.casefold())) is not None:
        return _METHOD_LOOKS[name]
    variant = _VARIANT.match(group)
    name = _BY_TEXT.get(variant["method"].casefold()) if variant else None
    if variant is None or name is None:
        return None
    look = _METHOD_LOOKS[name]
    return replace(look, name=group, symbol=look.symbol if variant["plain"] else f"{look.symbol}-open")


def _place(look: Look) -> int:
    """Position among the known methods, by colour and dash, which a variant shares with its method."""
    return next(i for i, one in enumerate(_METHOD_LOOKS.values()) if (one.color, one.dash) == (look.color, look.dash))
