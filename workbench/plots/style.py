"""Visual style of all figures: palette, a fixed look per method and per memory term, template, legend."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import plotly.graph_objects as go
import plotly.io as pio

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The colour-blind-safe palette of Okabe and Ito, without its yellow, which is too faint on white."""

FAINT, INK = "#9AA0A6", "#202124"
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
    return Look(name, PALETTE[place % 7], dash or DASHES[place % 7], symbol or SYMBOLS[place % 7])


_METHOD_LOOKS = {
    "reg": _look("REG", 0),
    "range": _look("range", 1),
    "random": _look("random", 2),
    "metis": _look("METIS", 3),
    "cluster": _look("cluster", 4),
    "reg_unweighted": _look("REG, unweighted", 5),
    "reg_normalized": _look("REG, normalized", 0, "dash", "hourglass"),
    "star": _look("star", 6),
    "star_refined": _look("star, refined", 1, "solid", "triangle-down"),
    "hypergraph": _look("hypergraph", 2, "solid", "pentagon"),
    "hypergraph_deep": _look("hypergraph, all hops", 3, "dash", "hexagon"),
    "hypergraph_refined": _look("hypergraph, refined", 4, "solid", "bowtie"),
    "micro-batch": _look("micro-batches", 0),
    "mini-batch": _look("mini-batches", 1),
    "RW": _look("RW", 4),
    "NS": _look("NS", 0),
    "LABOR-0": _look("LABOR-0", 1),
    "LABOR-*": _look("LABOR-*", 2),
    "lru": _look("LRU", 0),
    "fifo": _look("FIFO", 1),
    "clock": _look("CLOCK", 2),
    "sieve": _look("SIEVE", 3),
    "s3-fifo": _look("S3-FIFO", 4),
    "static": _look("static", 5),
    "belady": _look("Belady", 6),
    "belady-bypass": _look("Belady, bypass", 6, "dot", "star-diamond"),
    "whole batch": Look("whole batch", PALETTE[6], "dot", SYMBOLS[6]),  # dotted: an equal solid line shows through
}


def looks(groups: Iterable[Any]) -> dict[Any, Look]:
    """Assign a look to every group: known methods look the same in all figures, others get the remaining colours.

    Args:
        groups: distinct values of a table's column.

    Returns:
        Group → look, known methods first, in a fixed order.
    """
    groups = list(groups)
    known = {group: _METHOD_LOOKS[group] for group in _METHOD_LOOKS if group in groups}
    taken = {look.color for look in known.values()}
    free = [place for place in range(7) if PALETTE[place] not in taken] or list(range(7))
    others = [group for group in groups if group not in known]
    return known | {group: _look(str(group), free[i % len(free)]) for i, group in enumerate(others)}


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


_BLUE, _RED, _GREEN, _, _ORANGE, SKY, _BLACK = PALETTE
TERM_LOOKS: Mapping[str, TermLook] = {
    "parameters": TermLook("parameters", _BLACK),
    "optimizer": TermLook("optimizer state", _BLACK, "/"),
    "inputs": TermLook("input features", _BLUE),
    "blocks": TermLook("edges", SKY),
    "labels": TermLook("labels", SKY, "/"),
    "hidden": TermLook("hidden outputs", _GREEN),
    "aggregator": TermLook("aggregator", _RED),
    "loss": TermLook("loss", _GREEN, "/"),
    "gradients": TermLook("gradients", _BLACK, "x"),
    "workspace": TermLook("workspace", _ORANGE),
}
"""Look of each term of a memory estimate, bottom to top. Black: per model; blue: from the graph."""


def hatched(color: str, hatch: str, **pattern: Any) -> dict[str, Any]:
    """A bar's marker: a colour with white hatching over it.

    Args:
        color: "#rrggbb".
        hatch: one of plotly's pattern shapes, "" for none.
        pattern: further properties of plotly's pattern.
    """
    return {"color": color, "pattern": {"shape": hatch, "fgcolor": "white", "fillmode": "overlay", **pattern}}


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

    Args:
        figure: changed in place.
        title: None for none.
        height: pixels.
        subtitle: smaller text below the title.

    Returns:
        The same figure.
    """
    text = f"{title}<br><span style='font-size:13px'>{subtitle}</span>" if subtitle else title
    figure.update_layout(template="workbench", title_text=text, height=height, margin_t=64 if title else 36)
    return figure.update_layout(title_pad_t=26, margin_t=76) if subtitle else figure


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
