"""Visual style of all figures: a fixed look per memory term, template, legend."""

import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple

import plotly.graph_objects as go
import plotly.io as pio

from workbench.plots.looks import PALETTE

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
_LINE = 20  # pixels

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
    small = f"<br><span style='font-size:13px'>{'<br>'.join(below)}</span>" if subtitle else ""
    text = f"{'<br>'.join(above)}{small}" if title else None
    figure.update_layout(template="workbench", title_text=text, height=height + extra)
    figure.update_layout(meta={"title": f"{title}{f' · {subtitle}' if subtitle else ''}"} if title else None)
    figure.update_layout(margin_t=(64 if title else 36) + extra)
    return figure.update_layout(title_pad_t=26, margin_t=76 + extra) if subtitle else figure


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
