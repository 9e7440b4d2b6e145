"""Ratios of two sides of a benchmark: their quartiles as columns of a row, and their picture."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd


def quartiles(values: Sequence[float]) -> list[float]:
    """Lower quartile, median and upper quartile; of a single value, that value three times.

    >>> quartiles([1.0, 2.0, 3.0, 4.0, 5.0]), quartiles([7.0])
    ([2.0, 3.0, 4.0], [7.0, 7.0, 7.0])
    """
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else list(values) * 3


def ratio_columns(name: str, ratios: Sequence[float]) -> dict[str, float]:
    """Columns of a row: median and quartiles of the rounds' ratios.

    Args:
        name: of the quantity, such as "wall".
        ratios: one per round.
    """
    low, median, high = quartiles(ratios)
    return {f"{name}_ratio": median, f"{name}_ratio_low": low, f"{name}_ratio_high": high}


def ratio_dots(
    table: pd.DataFrame, cases: pd.Series, measures: Mapping[str, str], *, title: str, subtitle: str, axis: str
) -> Any:
    """Draw the ratios of several quantities, with half their interquartile range where they have one.

    Args:
        table: with the columns of `ratio_columns`; counts have a ratio alone.
        cases: of the table's rows, along the x-axis.
        measures: text of each quantity, by its name.
        title: of the figure.
        subtitle: below it.
        axis: title of the y-axis.
    """
    from workbench.plots.dots import interval_dots

    parts = [
        table.assign(case=cases, measure=text, ratio=table[f"{name}_ratio"], half=_half_width(table, name))
        for name, text in measures.items()
    ]
    options: dict[str, Any] = {"half_width": "half", "ratios": True, "title": title, "subtitle": subtitle}
    figure = interval_dots(pd.concat(parts), x="case", y="ratio", group="measure", **options)
    return figure.update_yaxes(title_text=axis, rangemode="tozero")


def _half_width(table: pd.DataFrame, name: str) -> Any:
    high = f"{name}_ratio_high"
    return (table[high] - table[f"{name}_ratio_low"]) / 2 if high in table else float("nan")
