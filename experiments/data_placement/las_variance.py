"""Rethinking Graph Data Placement, locality-aware sampling: variance and bias over f. A view of `las_movement`."""

from typing import Any

import pandas as pd

from experiments.data_placement.las_movement import CASE, panels, shown
from experiments.data_placement.local_samplers import LOCAL
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.interval import mean_intervals
from workbench.experiment.title import Title


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows: Any = shown(table)
    las = rows[(rows.method == "LAS") & (rows.factor == rows.factor.max())].set_index(CASE).variance_ratio
    return Title("Unbiased sampling costs variance: {las:.1f} times that of NS at the largest f", las=las)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    rows: Any = shown(table)
    local = rows[rows.method.isin(LOCAL)].rename(
        columns={"variance_ratio": "variance ÷ NS", "bias_ratio": "squared bias ÷ variance of NS"}
    )
    return lines(
        local.assign(panel=panels(local)),
        x="factor",
        log_x=True,
        y=["variance ÷ NS", "squared bias ÷ variance of NS"],
        group="method",
        facet="panel",
        title=title(table, reported).text,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows: Any = shown(table)
    by = [*CASE, "method"]
    corrected = rows[rows.method.isin(["LAS", "LADIES + LAS"])]
    return [
        claims.monotone(
            "variance-rises",
            "the variance of the corrected samplers rises with f",
            corrected,
            value="variance_ratio",
            along="factor",
            by=by,
        ),
        claims.within(
            "bias-rises",
            "the squared bias of the published form is larger at the largest f than at f = 1",
            _rise(rows[rows.method == "LAS, published"]),
            value="rise",
            by=by,
            least=claims.MARGIN,
        ),
    ]


def _rise(rows: Any) -> pd.DataFrame:
    """Squared bias at the largest factor minus that at the smallest, medians over runs."""
    wide = rows.pivot_table("bias_ratio", [*CASE, "method"], "factor", aggfunc="median")
    return (wide[wide.columns.max()] - wide[wide.columns.min()]).reset_index(name="rise")


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Variance and squared bias over the variance of NS, with 95 % intervals over runs; the paper gives neither."""
    keys = [*CASE, "method", "factor"]
    rows, parts = shown(table).dropna(subset=["variance_ratio"]), []
    for value, name in {"variance_ratio": "variance ÷ NS", "bias_ratio": "squared bias ÷ variance of NS"}.items():
        found = mean_intervals(rows, value=value, by=keys)
        told = found[value].map("{:.3g}".format) + " ± " + found.half_width.map("{:.2g}".format)
        parts.append(found[keys].assign(**{name: told}).set_index(keys))
    return pd.concat(parts, axis=1).reset_index()
