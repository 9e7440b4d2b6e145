"""How figures look and speak: template, a fixed look for every method, names and units for readers."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which people with any kind of colour vision tell apart; without yellow, faint on white."""

FAINT, INK = "#9AA0A6", "#202124"
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")
DASHES = ("solid", "dash", "dashdot", "longdash", "dot", "longdashdot", "solid")


@dataclass(frozen=True)
class Look:
    """What marks a line: colour, dash and symbol; the symbol is enough by itself, and so are colour and dash together.

    Args:
        name: for the legend.
        color: "#rrggbb".
        dash: of plotly's line dashes.
        symbol: of plotly's marker symbols; with "-open" it is hollow.
    """

    name: str
    color: str
    dash: str
    symbol: str


def _look(name: str, place: int, dash: str | None = None, symbol: str | None = None) -> Look:
    return Look(name, PALETTE[place % 7], dash or DASHES[place % 7], symbol or SYMBOLS[place % 7])


_LOOKS = {
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
    "whole batch": Look("whole batch", PALETTE[6], "dot", SYMBOLS[6]),  # seen on the solid line of what equals it
}


def looks(groups: Iterable[Any]) -> dict[Any, Look]:
    """The look of every group: a known method has its own in all figures, others take those that are left, in order.

    Args:
        groups: values of a table's column, each once.

    Returns:
        Group → look; known ones first, in an order that is always the same.
    """
    groups = list(groups)
    known = {group: _LOOKS[group] for group in _LOOKS if group in groups}
    taken = {look.color for look in known.values()}
    free = [place for place in range(7) if PALETTE[place] not in taken] or list(range(7))
    others = [group for group in groups if group not in known]
    return known | {group: _look(str(group), free[i % len(free)]) for i, group in enumerate(others)}


_LABELS = {
    "num_parts": "micro-batches K",
    "method": "partitioner",
    "peak_bytes": "peak memory",
    "epoch_seconds": "epoch time",
    "inputs_ratio": "input nodes, parts ÷ batch",
    "largest_ratio": "input nodes, largest part ÷ batch",
    "total_inputs": "input nodes",
    "full_inputs": "input nodes of the batch",
    "largest_inputs": "input nodes of the largest part",
    "hidden_dim": "hidden width",
}
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_UNITS = {
    "_bytes": {unit: 1024.0**power for power, unit in enumerate(_BYTES)},
    "_seconds": {"ms": 1e-3, "s": 1.0, "min": 60.0},
}


def label(column: str, unit: str = "") -> str:
    """A column's name for readers.

    >>> label("num_parts"), label("peak_bytes", "GiB"), label("forward_seconds", "s")
    ('micro-batches K', 'peak memory (GiB)', 'forward (s)')
    """
    suffix = next((s for s in _UNITS if column.endswith(s)), "")
    text = _LABELS.get(column, column.removesuffix(suffix).replace("_", " "))
    return f"{text} ({unit})" if unit else text


def unit_of(column: str, largest: float, unit: str | None = None) -> tuple[str, float]:
    """The unit to show a column in, and what to divide its values by: the largest unit in which `largest` is 1 or more.

    Args:
        column: ends in `_bytes` or `_seconds`; others have no unit.
        largest: of the values, in bytes or seconds.
        unit: to be taken instead: B, KiB, MiB, GiB, TiB; ms, s, min.

    Raises:
        ValueError: a unit that the column does not have.

    >>> unit_of("peak_bytes", 3 * 2**20)
    ('MiB', 1048576.0)
    """
    units = next((units for suffix, units in _UNITS.items() if column.endswith(suffix)), {"": 1.0})
    if unit is None:
        unit = max((u for u in units if units[u] <= largest), key=lambda u: units[u], default=next(iter(units)))
    if unit not in units:
        raise ValueError(
            f"{column} can't be shown in {unit!r}; choose from {', '.join(u for u in units if u) or 'none'}"
        )
    return unit, units[unit]


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
    """Give a figure the template, a title and a height in pixels; its width is that of what it stands in."""
    text = f"{title}<br><span style='font-size:13px'>{subtitle}</span>" if subtitle else title
    figure.update_layout(template="workbench", title_text=text, height=height, margin_t=64 if title else 36)
    return figure.update_layout(title_pad_t=26, margin_t=76) if subtitle else figure


def traces_of(figure: go.Figure) -> tuple[Any, ...]:
    """A figure's traces, whose type plotly does not declare."""
    return tuple(figure.data)
