"""Plotly figures embedded in an HTML page that includes plotly.js once and draws them as they are scrolled to."""

import json
import re
from html import unescape
from typing import Any

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_CONFIG = {
    "responsive": True,
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}
_HEIGHT = 440  # pixels, for figures without a height of their own
_COLUMN = 300  # pixels, minimum width per column of subplots


def caption(figure: Any) -> str:
    """Returns a figure's title as plain text; "" without a title.

    Args:
        figure: a plotly Figure.
    """
    whole = (figure.layout.meta or {}).get("title") if isinstance(figure.layout.meta, dict) else None
    text = re.sub(r"<br ?/?>", " · ", whole or figure.layout.title.text or "")
    return unescape(re.sub(r"<[^>]*>", "", text)).strip()


def least_width(figure: Any) -> int:
    """Returns the width in pixels below which a figure should scroll, so that its subplots remain legible.

    Args:
        figure: a plotly Figure.
    """
    starts = {round(axis.domain[0], 3) for axis in figure.select_xaxes() if axis.domain}
    return _COLUMN * max(1, len(starts))


def embed(figure: Any, name: str) -> str:
    """Returns the HTML of a place for an interactive figure and of its data, which a script of the page draws.

    The title is omitted: the page shows it as a caption, which wraps.

    Args:
        figure: a plotly Figure; not modified.
        name: id of the HTML element, unique in the page.
    """
    import plotly.graph_objects as go

    shown = go.Figure(figure)
    height = figure.layout.height or _HEIGHT
    shown.update_layout(
        title=None,
        width=None,
        autosize=True,
        height=height,
        font_family=figure.layout.font.family or figure.layout.template.layout.font.family or _FONT,
        margin=_margin(figure),
    )
    data = f'{{"config":{json.dumps(_CONFIG)},{_in_a_script(str(shown.to_json()))[1:]}'
    place = f'<div class="plot" id="{name}" style="height: {height:.0f}px"></div>'
    return f'{place}<script type="application/json" id="{name}-data">{data}</script>'


def _in_a_script(text: str) -> str:
    """JSON that ends no script element, whatever its strings contain."""
    return text.replace("<", "\\u003c")


def _margin(figure: Any) -> dict[str, int]:
    """Margins that neither the author nor the template sets; subplot titles stay below the mode bar."""
    ours = {"l": 64, "r": 16, "t": 60 if figure.layout.annotations else 36, "b": 56}
    said = (figure.layout.margin, figure.layout.template.layout.margin)
    return {side: value for side, value in ours.items() if all(margin[side] is None for margin in said)}


def plotly_js() -> str:
    """Returns the source of plotly.js, which every embedded figure requires."""
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()
