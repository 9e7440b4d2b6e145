"""Memory by term as stacked bars: what a step's peak is made of, in one look for all figures."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from workbench.core.units import format_bytes
from workbench.memory.record import TERMS
from workbench.plots.style import PALETTE

_LEAST_SAID = 0.08  # share of a bar that has room for its number


class TermLook(NamedTuple):
    """What marks a term: colour, and for terms of one kind a hatch.

    Args:
        name: for the legend.
        color: "#rrggbb".
        hatch: of plotly's pattern shapes.
    """

    name: str
    color: str
    hatch: str = ""


_BLUE, _RED, _GREEN, _PINK, _ORANGE, _SKY, _BLACK = PALETTE
TERM_LOOKS: Mapping[str, TermLook] = {
    "parameters": TermLook("parameters", _BLACK),
    "optimizer": TermLook("optimizer state", _BLACK, "/"),
    "inputs": TermLook("input features", _BLUE),
    "blocks": TermLook("edges", _SKY),
    "labels": TermLook("labels", _SKY, "/"),
    "hidden": TermLook("hidden outputs", _GREEN),
    "aggregator": TermLook("aggregator", _RED),
    "loss": TermLook("loss", _GREEN, "/"),
    "gradients": TermLook("gradients", _BLACK, "x"),
    "workspace": TermLook("workspace", _ORANGE),
}
"""Terms of `workbench.memory.record`, in order. Black: what the model holds; blue: what comes from the graph."""


def term_bars(x: Sequence[Any], bars: Sequence[Mapping[str, int]], factor: float, *, shares: bool = False) -> list[Any]:
    """Traces of stacked bars, one a term, those that are nothing in all bars left out.

    Args:
        x: where the bars stand; two lists for bars in named groups.
        bars: for each the bytes by term.
        factor: bytes of a unit of the axis.
        shares: write each term's share of its bar into it, where it has room.
    """
    totals = [max(1, sum(terms.values())) for terms in bars]
    present = [term for term in TERMS if any(terms.get(term, 0) for terms in bars)]
    return [_bar(x, term, [terms.get(term, 0) for terms in bars], totals, factor, shares) for term in present]


def _bar(
    x: Sequence[Any], term: str, sizes: Sequence[int], totals: Sequence[int], factor: float, shares: bool
) -> go.Bar:
    look = TERM_LOOKS[term]
    parts = [size / total for size, total in zip(sizes, totals, strict=True)]
    said = [f"{format_bytes(size)} ({size:,} bytes), {part:.1%}" for size, part in zip(sizes, parts, strict=True)]
    return go.Bar(
        x=x,
        y=[size / factor for size in sizes],
        name=look.name,
        marker={
            "color": look.color,
            "pattern": {"shape": look.hatch, "fgcolor": "white", "fillmode": "overlay", "size": 6, "solidity": 0.35},
            "line": {"width": 0},
        },
        text=[f"{part:.0%}" if shares and part >= _LEAST_SAID else "" for part in parts],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"size": 13, "color": "white" if look.color != _SKY else "black"},
        constraintext="none",
        customdata=said,
        hovertemplate=f"<b>{look.name}</b><br>%{{customdata}}<extra>%{{x}}</extra>",
    )
