"""Betty, Table 5: test accuracy with the whole batch and with micro-batches, for independent and for equal seeds."""

from dataclasses import replace
from math import ceil, inf
from typing import Any

import pandas as pd

from experiments.betty.curves import CurveConfig, curve_gaps, float32_rows, same_curves, training_curve
from workbench.experiment import claims
from workbench.experiment.finding import Finding, undefined, with_undefined
from workbench.experiment.interval import mean_differences, mean_intervals
from workbench.experiment.title import Title

Config = CurveConfig
run = training_curve
CASE = ["dataset", "model"]
RESOLUTION = 0.02
"""Half width of an interval that can show the largest difference in the paper, 2.2 points (GAT on Cora)."""
NAMES = {"whole": "whole batch", "micro": "micro-batch"}


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The last row of each run in float32, without micro-batches whose seed the whole batch has too: they are not
    independent of it."""
    runs = float32_rows(table).query("moved == 0").sort_values("epoch", kind="stable")
    last: Any = runs.groupby([*CASE, "approach", "seed"], sort=False).tail(1).sort_index()
    seeds = last[last.approach == "whole"].groupby(CASE).seed.agg(set)
    return last[[row.approach == "whole" or row.seed not in seeds[row.dataset, row.model] for row in last.itertuples()]]


def means(table: pd.DataFrame) -> pd.DataFrame:
    """Mean test accuracy of each approach, with its 95 % confidence interval."""
    order = {approach: place for place, approach in enumerate(NAMES)}
    runs = shown(table).sort_values("approach", key=lambda found: found.map(order), kind="stable")
    return mean_intervals(runs, value="test_accuracy", by=[*CASE, "approach"])


def differences(table: pd.DataFrame) -> pd.DataFrame:
    """Mean test accuracy with micro-batches minus that with the whole batch, with simultaneous 95 % confidence
    intervals."""
    return mean_differences(shown(table), value="test_accuracy", by=CASE, among="approach", between=("micro", "whole"))


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    gaps: Any = same_seed_gaps(table)
    return Title("The same batches end at most {gaps.most:.2%} apart in accuracy", gaps=gaps)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import interval_dots

    found = means(table)
    return interval_dots(
        found.assign(case=found.dataset + "<br>" + found.model, approach=found.approach.map(NAMES)),
        x="case",
        y="test_accuracy",
        group="approach",
        title=title(table, reported).text,
        subtitle="test accuracy, mean and 95 % confidence interval over independent seeds",
    )


def same_seed_gaps(table: pd.DataFrame) -> pd.Series:
    """Largest difference in test accuracy between the whole batch and micro-batches with the same seed, per case."""
    return curve_gaps(float32_rows(table), value="test_accuracy").groupby(CASE).gap.max()


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    """Check runs on the same batches exactly, and runs with independent seeds as far as they can show a difference."""
    return [*same_curves(table), *claims.once_trained([no_difference(table)], learnt(table))]


def learnt(table: pd.DataFrame) -> Finding:
    """Check that each run that is compared beats the largest class's share of the test nodes."""
    rows: Any = shown(table)
    found = claims.within(
        "trained",
        f"every run beats the majority class by {claims.BEATEN:.0%} of what it leaves and more",
        rows.assign(beaten=(rows.test_accuracy - rows.majority) / (1 - rows.majority)),
        value="beaten",
        by=[*CASE, "approach", "seed"],
        least=claims.BEATEN,
        form=".2f",
    )
    return replace(found, decided=found.held, trained=found.held)


def no_difference(table: pd.DataFrame) -> Finding:
    """Check that the interval of every case contains 0; undecided if one is wider than the paper's differences, and
    would contain 0 in any case."""
    rows, apart = shown(table), differences(table)
    lost = rows[undefined(rows, "test_accuracy")]
    contains = (apart.low <= 0) & (apart.high >= 0)
    wide = ~(apart.half_width <= RESOLUTION)
    refuted = bool((~contains & apart.half_width.notna()).any()) or bool(len(lost))
    told = {
        end: f"{apart.dataset[at]}, {apart.model[at]}: {_points(apart.loc[at])}"
        for end, at in (
            ("farthest from 0 for its width", (apart.difference.abs() / apart.half_width).fillna(0).idxmax()),
            ("narrowest", apart.half_width.fillna(inf).idxmin()),
            ("widest", apart.half_width.fillna(inf).idxmax()),
        )
    }
    evidence = f"{contains.sum()} of {len(apart)} cases; " + "; ".join(f"{end} {case}" for end, case in told.items())
    if wide.any() and not refuted:
        runs: Any = rows.groupby([*CASE, "approach"], sort=False).seed.nunique().groupby(CASE, sort=False).min()
        number_of_runs = apart.merge(runs.reset_index(name="runs")).runs
        wanted = number_of_runs * (apart.half_width / RESOLUTION) ** 2  # widths fall with the root of the number
        at = wanted.fillna(inf).idxmax()
        number = f"about {ceil(wanted[at])}" if wanted[at] < inf else "at least two"
        evidence += (
            f" points; {wide.sum()} can't show {100 * RESOLUTION:g} points: {number} seeds per approach would decide "
            f"{apart.dataset[at]}, {apart.model[at]}"
        )
    return Finding(
        "no-difference-seen",
        f"independent seeds, which could show a difference of {RESOLUTION:.0%}, show none: the 95 % confidence "
        "interval of the difference (Welch's, widened by Bonferroni to hold in all cases at once) contains 0",
        bool(contains.all()) and not wide.any() and not refuted,
        with_undefined(evidence, lost, "test_accuracy", [*CASE, "seed"]),
        decided=refuted or not wide.any(),
    )


def _points(row: Any) -> str:
    """A difference and its half width, in percentage points."""
    return f"{100 * row.difference:+.2f} ± {100 * row.half_width:.2f}"


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """In percent: the paper's accuracies, ours over independent seeds, their difference, and the largest difference
    with the same seed."""
    found, given = means(table), reported.set_index(CASE)
    columns: dict[str, Any] = {
        f"{name}, paper": given[way].map("{:.2f}".format) + " ± " + given[f"{way}_pm"].map("{:.2f}".format)
        for way, name in NAMES.items()
    }
    told = (100 * found.test_accuracy).map("{:.2f}".format) + " ± " + (100 * found.half_width).map("{:.2f}".format)
    ours = found.assign(told=told).pivot(index=CASE, columns="approach", values="told")
    columns |= {f"{name}, here": ours[way] for way, name in NAMES.items()}
    apart = differences(table).set_index(CASE)
    columns["difference, independent seeds"] = apart.apply(_points, axis=1)
    columns["same seed, difference"] = 100 * same_seed_gaps(table)
    return pd.DataFrame(columns).rename_axis(CASE).reset_index()
