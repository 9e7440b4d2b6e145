"""A dot per method and topology, in a panel per data set."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from experiments.data_placement.movement import METHODS, OWN
from workbench.plots.axes import PanelGrid
from workbench.plots.style import INK, looks, merge_legend, titled

_LOOKS = looks(METHODS)
_GPUS = " GPUs"


def method_dots(
    table: pd.DataFrame, *, x: str, y: Mapping[str, str], panel: str, title: str, subtitle: str, line: float
) -> Any:
    """Draw a value of every method over a category; on its own part's seeds a method's symbol is hollow.

    Args:
        table: rows with `method`.
        x: column of categories.
        y: column of values to title of the y axis, one panel below the other.
        panel: column whose values have panels of their own.
        title: of the figure.
        subtitle: below it.
        line: value that is drawn as a dotted line.
    """
    panels, categories = ([*dict.fromkeys(table[column])] for column in (panel, x))
    grid = PanelGrid(tuple(panels), len(y))
    figure = grid.figure()
    for place, name in enumerate(panels):
        for value, (row, col) in zip(y, grid.cells(place), strict=True):
            for trace in _traces(table[table[panel] == name], x, value, categories):
                figure.add_trace(trace, row=row, col=col)
            # after the traces: plotly draws no line in an empty panel
            figure.add_hline(y=line, line={"dash": "dot", "color": INK, "width": 1}, row=row, col=col)  # pyright: ignore
            figure.update_yaxes(title_text=y[value] if col == 1 else None, row=row, col=col)
        if categories[0].endswith(_GPUS):
            figure.update_xaxes(title_text=_GPUS.strip(), row=grid.cells(place)[-1][0], col=grid.cells(place)[-1][1])
    ticks = {"tickvals": [*range(len(categories))], "ticktext": [*map(_tick, categories)], "tickangle": 0}
    figure.update_xaxes(ticks | {"tickfont_size": 10, "ticks": "", "showgrid": False})
    figure.update_yaxes(rangemode="tozero", autorangeoptions_include=[line])
    merge_legend(figure)
    return titled(figure, title, subtitle=subtitle, height=grid.height + 40)


def _tick(category: str) -> str:
    """Narrow: the number of GPUs alone, and words below each other."""
    return category.removesuffix(_GPUS).replace(", ", ",<br>").replace(" ", "<br>")


def _traces(table: Any, x: str, y: str, categories: list[str]) -> Iterator[Any]:
    """One per method, side by side in each category."""
    import plotly.graph_objects as go

    shown = [method for method in METHODS if method in set(table.method)]
    for number, method in enumerate(shown):
        here: Any = table[table.method == method]
        offset = (number - (len(shown) - 1) / 2) * 0.8 / len(shown)
        base = method.removesuffix(OWN)
        look, own = _LOOKS[base], method.removeprefix(base)
        yield go.Scatter(
            x=[categories.index(value) + offset for value in here[x]],
            y=here[y].tolist(),
            mode="markers",
            name=look.name + own,
            marker={"color": look.color, "symbol": f"{look.symbol}-open" if own else look.symbol, "size": 9},
            text=here[x].tolist(),
            hovertemplate=f"{look.name}{own}, %{{text}}: %{{y:.3g}}<extra></extra>",
        )
