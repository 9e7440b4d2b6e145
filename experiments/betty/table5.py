"""Betty, Table 5: test accuracy of the whole batch and of micro-batches, over independent seeds and with the same."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from workbench.experiment import claims
from workbench.experiment.curve import CurveConfig, curve_gaps, same_curves, training_curve
from workbench.experiment.finding import Finding
from workbench.experiment.interval import mean_intervals

Config = CurveConfig
CASE = ["dataset", "model"]
NAMES = {"whole": "whole batch", "micro": "micro-batch"}


def run(config: Config) -> Iterator[dict[str, Any]]:
    yield from training_curve(config)


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """A row a run: the last one of each, in float32. Micro-batches with a seed of the whole batch are left out: they
    are not independent of it."""
    runs = table.query("precision == 'float32' and moved == 0").sort_values("epoch", kind="stable")
    last: Any = runs.groupby([*CASE, "approach", "seed"], sort=False).tail(1).sort_index()
    seeds = last[last.approach == "whole"].groupby(CASE).seed.agg(set)
    return last[[row.approach == "whole" or row.seed not in seeds[row.dataset, row.model] for row in last.itertuples()]]


def means(table: pd.DataFrame) -> pd.DataFrame:
    """Mean test accuracy of each way, with its 95 % confidence interval."""
    order = {approach: place for place, approach in enumerate(NAMES)}
    runs = shown(table).sort_values("approach", key=lambda found: found.map(order), kind="stable")
    return mean_intervals(runs, value="test_accuracy", by=[*CASE, "approach"])


def apart(table: pd.DataFrame) -> pd.DataFrame:
    """How far the two means are apart, as a multiple of the sum of their intervals' half widths: above 1 the intervals
    do not overlap."""
    wide = means(table).pivot(index=CASE, columns="approach", values=["test_accuracy", "half_width"])
    mean, half = wide["test_accuracy"], wide["half_width"]
    found = {"difference": mean["micro"] - mean["whole"], "room": half["micro"] + half["whole"]}
    return pd.DataFrame(found).assign(apart=lambda rows: rows.difference.abs() / rows.room).reset_index()


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.intervals import interval_dots

    found = means(table)
    return interval_dots(
        found.assign(case=found.dataset + "<br>" + found.model, approach=found.approach.map(NAMES)),
        x="case",
        y="test_accuracy",
        group="approach",
        title=f"Largest difference of two means: {apart(table).difference.abs().max():.2%}",
        subtitle="test accuracy, mean and 95 % confidence interval over independent seeds",
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    return [
        *same_curves(table),
        claims.within(
            "intervals-overlap",
            "with independent seeds both 95 % confidence intervals overlap: the means are apart by no more than their "
            "half widths together",
            apart(table),
            value="apart",
            by=CASE,
            most=1,
            form=".2f",
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Percent: the paper's columns, ours over independent seeds, and the largest difference with the same seed."""
    found, given = means(table), reported.set_index(CASE)
    columns: dict[str, Any] = {
        f"{name}, paper": given[way].map("{:.2f}".format) + " ± " + given[f"{way}_pm"].map("{:.2f}".format)
        for way, name in NAMES.items()
    }
    told = (100 * found.test_accuracy).map("{:.2f}".format) + " ± " + (100 * found.half_width).map("{:.2f}".format)
    ours = found.assign(told=told).pivot(index=CASE, columns="approach", values="told")
    columns |= {f"{name}, here": ours[way] for way, name in NAMES.items()}
    same = curve_gaps(table.query("precision == 'float32'"), value="test_accuracy").groupby(CASE).gap.max()
    columns["same seed, difference"] = 100 * same
    return pd.DataFrame(columns).rename_axis(CASE).reset_index()
