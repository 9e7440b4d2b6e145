"""Visual style of all figures: the look of every method and memory term, template, titles and legend."""

import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import plotly.graph_objects as go
import plotly.io as pio

FAINT, INK = "#9AA0A6", "#202124"


class TermLook(NamedTuple):
    """Colour of a memory term, and a hatch that distinguishes terms of one colour.

    Args:
        name: text of the legend entry.
        color: "#rrggbb".
        hatch: one of plotly's pattern shapes.
    """

    name: str
    color: str
    hatch: str = ""


PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The colour-blind-safe palette of Okabe and Ito, without its yellow, which is too faint on white."""

_BLUE, _RED, _GREEN, _, _ORANGE, SKY, _BLACK = PALETTE
_GREY = "#5F6368"
TERM_LOOKS: Mapping[str, TermLook] = {
    "parameters": TermLook("parameters", _BLACK),
    "optimizer": TermLook("optimizer state", _GREY, "/"),
    "inputs": TermLook("input features", _BLUE),
    "blocks": TermLook("edges", SKY),
    "labels": TermLook("labels", SKY, "/"),
    "hidden": TermLook("hidden outputs", _GREEN),
    "aggregator": TermLook("aggregator", _RED),
    "loss": TermLook("loss", _GREEN, "/"),
    "gradients": TermLook("gradients", FAINT, "x"),
    "workspace": TermLook("workspace", _ORANGE),
}
"""Look of each term of a memory estimate, bottom to top. Black and greys: per model; blue: from the graph."""


def hatched(color: str, hatch: str, **pattern: Any) -> dict[str, Any]:
    """A bar's marker: a colour with white hatching over it.

    Args:
        color: "#rrggbb".
        hatch: one of plotly's pattern shapes, "" for none.
        pattern: further properties of plotly's pattern.
    """
    return {"color": color, "pattern": {"shape": hatch, "fgcolor": "white", "fillmode": "overlay", **pattern}}


_TITLE_CHARACTERS, _SUBTITLE_CHARACTERS = 68, 84  # of a line of 620 pixels in DejaVu Sans, the widest of the fonts
_LINE, FACET_LINE = 20, 17  # pixels

_AXIS = {
    "automargin": True,
    "gridcolor": "#E8EAED",
    "linecolor": FAINT,
    "showline": True,
    "ticks": "outside",
    "tickcolor": FAINT,
    "title": {"standoff": 8, "font": {"size": 13}},
    "zeroline": False,
}

TEMPLATE = go.layout.Template(
    layout={
        "colorway": PALETTE,
        "font": {"family": "'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif", "size": 13, "color": INK},
        "title": {
            "font": {"size": 16},
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 12},
        },
        "margin": {"l": 64, "r": 16, "t": 64, "b": 64},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "hoverlabel": {"align": "left", "font": {"size": 13}},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 0,
            "yref": "container",
            "yanchor": "bottom",
            "itemwidth": 40,
        },
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
)

pio.templates["workbench"] = TEMPLATE


def titled(figure: go.Figure, title: str | None, *, height: int, subtitle: str = "") -> go.Figure:
    """Apply the template, a title and a height; the width adapts to the page.

    A long title is wrapped, so that a picture of 700 pixels, as notebooks have them, shows all of it; the figure gets
    higher by as much. `layout.meta` has the title on one line.

    Args:
        figure: changed in place.
        title: None for none.
        height: pixels, without further lines of the title.
        subtitle: smaller text below the title.

    Returns:
        The same figure.
    """
    above, below = _lines(title or "", _TITLE_CHARACTERS), _lines(subtitle, _SUBTITLE_CHARACTERS)
    extra = _LINE * (max(0, len(above) - 1) + max(0, len(below) - 1))
    facets = [note.text for note in figure.layout.annotations if (note.text or "").startswith("<b>")]
    extra += FACET_LINE * max((text.count("<br>") for text in facets), default=0)
    small = f"<br><span style='font-size:13px'>{'<br>'.join(below)}</span>" if subtitle else ""
    text = f"{'<br>'.join(above)}{small}" if title else None
    figure.update_layout(template="workbench", title_text=text, height=height + extra)
    figure.update_layout(meta={"title": f"{title}{f' · {subtitle}' if subtitle else ''}"} if title else None)
    # plotly draws a title of several lines half a line higher than one of a single line
    higher = _LINE // 2 if len(above) + len(below) > 1 else 0
    figure.update_layout(title_pad_t=12 + higher + (4 if subtitle else 0))
    return figure.update_layout(margin_t=(86 if subtitle else 64 if title else 36) + extra)


def _lines(text: str, width: int) -> list[str]:
    """Lines of a title; one with markup of its own stays as it is."""
    return [text] if "<" in text else textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def merge_legend(figure: go.Figure) -> None:
    """Give all traces of one name a single legend entry, which shows and hides them together.

    Args:
        figure: changed in place; traces that are unnamed or have `showlegend=False` get no entry.
    """
    named = {None, ""}
    for trace in traces_of(figure):
        trace.legendgroup = trace.name
        if trace.showlegend is not False:
            trace.showlegend = trace.name not in named
            named.add(trace.name)


def traces_of(figure: go.Figure) -> tuple[Any, ...]:
    """The traces of a figure, typed as Any because plotly's stubs omit their attributes.

    Args:
        figure: any plotly figure.
    """
    return tuple(figure.data)


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
    "algorithm-1-printed": _look("Algorithm 1, as printed", 0, "dot", "hexagram-open"),
    "algorithm-1, sum": _look("Algorithm 1, sum", 0, "longdash", "hourglass"),
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
    text = look.name + group.removeprefix(variant["method"])
    return replace(look, name=text, symbol=look.symbol if variant["plain"] else f"{look.symbol}-open")


def _place(look: Look) -> int:
    """Position among the known methods, by colour and dash, which a variant shares with its method."""
    return next(i for i, one in enumerate(_METHOD_LOOKS.values()) if (one.color, one.dash) == (look.color, look.dash))
