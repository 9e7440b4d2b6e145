"""Figure, claims and summary of benchmarks that time DGL beside the library: DGL's seconds over ours."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from workbench.experiment import claims
from workbench.experiment.finding import Finding


def draw_ratios(
    table: pd.DataFrame, *, panel: str, case: Sequence[str], group: str, title: str, axis: str = "DGL's time ÷ ours"
) -> Any:
    """A dot per case at the ratio of the best times, with a bar over the quartiles of its rounds.

    Args:
        table: rows with `ratio_best`, `ratio_low` and `ratio_high`.
        panel: column that groups the cases along the x axis.
        case: columns that name a case.
        group: column whose values differ by colour and symbol.
        title: of the figure.
        axis: title of the axis of the ratios.
    """
    import plotly.graph_objects as go

    from workbench.plots.style import INK, looks, titled

    figure = go.Figure()
    for name, look in looks(dict.fromkeys(table[group])).items():
        rows: Any = table[table[group] == name]
        cases = rows[list(case)].astype(str).agg(", ".join, axis=1)
        figure.add_scatter(
            x=[rows[panel].astype(str).tolist(), cases.tolist()],
            y=rows.ratio_best.tolist(),
            error_y=_quartiles(rows),
            name=look.name,
            mode="markers",
            marker={"symbol": look.symbol, "size": 8, "color": look.color},
            hovertemplate=f"<b>{look.name}</b><br>%{{x}}: %{{y:.2f}} times<extra></extra>",
        )
    figure.add_hline(y=1, line={"color": INK, "width": 1}, layer="below")
    figure.update_yaxes(title_text=axis, rangemode="tozero")
    figure.update_xaxes(tickangle=90)
    middle, count = table.ratio_best.median(), len(table)
    subtitle = f"dots: ratio of the best times, median {middle:.2f} of {count} cases; bars: quartiles over the rounds"
    return titled(figure, title, subtitle=subtitle, height=520)


def _quartiles(rows: Any) -> dict[str, Any]:
    """Bars from the dot: the ratio of the best times may be outside the quartiles."""
    above, below = (rows.ratio_high - rows.ratio_best).clip(lower=0), (rows.ratio_best - rows.ratio_low).clip(lower=0)
    return {"array": above.tolist(), "arrayminus": below.tolist(), "thickness": 1, "width": 2}


def faster(table: pd.DataFrame, *, by: Sequence[str], least: float, median: float) -> list[Finding]:
    """Findings on the ratio: at least so much in every case, and in the median over the cases.

    Args:
        table: rows with `ratio_best`.
        by: columns that make a case.
        least: that the ratio is claimed to be in every case.
        median: that its median is claimed to be.
    """
    every = f"DGL takes at least {least:g} times as long in every case"
    half = f"and at least {median:g} times as long in the median case"
    ratio = {"value": "ratio_best", "by": by, "form": ".2f", "timed": True}
    return [
        claims.within("faster-in-every-case", every, table, least=least, **ratio),
        claims.median_within("faster-at-the-median", half, table, least=median, **ratio),
    ]


def summary(groups: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The ratios of the best times in a few numbers.

    Args:
        groups: description → rows; groups without rows are omitted.

    Returns:
        One row per group: `measured` (the description), `cases`, `median`, `from`, `to`, and `spread`: the
        interquartile range of a case's rounds, relative to their median; of these the median over the cases.
    """
    return pd.DataFrame([_summary(name, rows) for name, rows in groups.items() if len(rows)])


def _summary(name: str, rows: Any) -> dict[str, Any]:
    ratios, spread = rows.ratio_best, (rows.ratio_high - rows.ratio_low) / rows.ratio_median
    ends = {"from": ratios.min(), "to": ratios.max(), "spread": spread.median()}
    return {"measured": name, "cases": len(rows), "median": ratios.median(), **ends}
