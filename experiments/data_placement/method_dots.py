"""A dot per method and topology, in a panel per data set."""

from typing import Any

import pandas as pd

from experiments.data_placement.movement import METHODS
from workbench.plots.layout import PanelGrid
from workbench.plots.style import INK, PALETTE, SYMBOLS, merge_legend, titled

_COLORS = dict(zip(("naive", "random", "METIS", "PaGraph", "hottest", "algorithm-1", "search"), PALETTE, strict=True))


def method_dots(table: pd.DataFrame, *, x: str, y: str, y_title: str, title: str, subtitle: str, line: float) -> Any:
    """Draw a value of every method over a category; variants of a method have its colour and a hollow symbol.

    Args:
        table: rows with `dataset` and `method`.
        x: column of categories.
        y: column of values.
        y_title: title of the y axes.
        title: of the figure.
        subtitle: below it.
        line: value that is drawn as a dotted line.
    """
    import plotly.graph_objects as go

    panels, categories = ([*dict.fromkeys(table[column])] for column in ("dataset", x))
    grid = PanelGrid(tuple(panels))
    figure = grid.figure()
    shown = [method for method in METHODS if method in set(table.method)]
    for place, panel in enumerate(panels):
        row, col = grid.cells(place)[0]
        figure.add_hline(y=line, line={"dash": "dot", "color": INK, "width": 1}, row=row, col=col)  # pyright: ignore
        for number, method in enumerate(shown):
            here: Any = table[(table.dataset == panel) & (table.method == method)]
            offset = (number - (len(shown) - 1) / 2) * 0.8 / len(shown)
            trace = go.Scatter(
                x=[categories.index(value) + offset for value in here[x]],
                y=here[y].tolist(),
                mode="markers",
                name=method,
                marker=_marker(method),
                text=here[x].tolist(),
                hovertemplate=f"{method}, %{{text}}: %{{y:.3g}}<extra></extra>",
            )
            figure.add_trace(trace, row=row, col=col)
        figure.update_yaxes(title_text=y_title if col == 1 else None, rangemode="tozero", row=row, col=col)
    figure.update_xaxes(tickvals=[*range(len(categories))], ticktext=categories, ticks="", showgrid=False)
    merge_legend(figure)
    return titled(figure, title, subtitle=subtitle, height=grid.height + 40)


def _marker(method: str) -> dict[str, Any]:
    base = next(name for name in _COLORS if method.startswith(name))
    symbol = SYMBOLS[[*_COLORS].index(base)]
    return {"color": _COLORS[base], "symbol": symbol if method == base else f"{symbol}-open", "size": 9}
