"""Plotly figures as parts of a page that holds plotly.js once."""

import re
from html import unescape
from typing import Any

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_HEIGHT = 440  # pixels, of figures that leave it open
_COLUMN = 300  # pixels; columns of subplots narrower than this scroll instead


def caption(figure: Any) -> str:
    """A figure's own title as plain text; "" without one."""
    text = re.sub(r"<br ?/?>", " · ", figure.layout.title.text or "")
    return unescape(re.sub(r"<[^>]*>", "", text)).strip()


def least_width(figure: Any) -> int:
    """Pixels below which a figure should scroll: its columns of subplots can't be narrowed at will.

    Args:
        figure: a plotly Figure.
    """
    starts = {round(axis.domain[0], 3) for axis in figure.select_xaxes() if axis.domain}
    return _COLUMN * max(1, len(starts))


def embed(figure: Any, name: str) -> str:
    """HTML of an interactive figure without plotly.js, as wide as what it stands in.

    Its title is left out: the page says it as a caption, which wraps.

    Args:
        figure: a plotly Figure; not changed.
        name: id of the element, unique in the page.
    """
    import plotly.graph_objects as go

    shown = go.Figure(figure)
    shown.update_layout(
        title=None,
        width=None,
        autosize=True,
        height=figure.layout.height or _HEIGHT,
        font_family=figure.layout.font.family or figure.layout.template.layout.font.family or _FONT,
        margin=_margin(figure),
    )
    config = {
        "responsive": True,
        "displaylogo": False,
        "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
    }
    return shown.to_html(full_html=False, include_plotlyjs=False, config=config, div_id=name)


def _margin(figure: Any) -> dict[str, int]:
    """What neither the author nor the template says; titles of subplots stay below the buttons."""
    ours = {"l": 64, "r": 16, "t": 60 if figure.layout.annotations else 36, "b": 56}
    said = (figure.layout.margin, figure.layout.template.layout.margin)
    return {side: value for side, value in ours.items() if all(margin[side] is None for margin in said)}


def plotly_js() -> str:
    """The whole of plotly.js, which every embedded figure needs."""
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()
