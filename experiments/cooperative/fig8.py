"""Cooperative Minibatching, Figure 8: training loss and validation F1 with the dependent sampler. A view of Table 3."""

from math import inf
from typing import Any

import pandas as pd

from experiments.cooperative.accuracy_runs import draw_curves, learnt, mean_curves, paired_differences
from experiments.cooperative.table3 import RUN, kappa_text, with_numbers
from workbench.experiment.claims import once_trained
from workbench.experiment.finding import Finding
from workbench.experiment.interval import decided_within
from workbench.experiment.title import Title

VALUES = ["loss", "val_f1_sampled"]
LATE = 0.5
"""Share of the steps at the end of a run over which curves are compared."""


def late_means(table: pd.DataFrame) -> pd.DataFrame:
    """Means over the second half of every run: one row per data set, seed and κ."""
    rows = with_numbers(table)
    late: Any = rows[rows.step > (1 - LATE) * rows.groupby("dataset").step.transform("max")]
    return late.groupby([*RUN, "kappa"], sort=False)[VALUES].mean(skipna=False).reset_index()


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    f1: Any = late_means(table).groupby(["dataset", "kappa"]).val_f1_sampled.mean().unstack("kappa").sort_index(axis=1)
    return Title(
        "F1 with the sampler itself: {first:.1%} at κ = {kappa:g}, {last:.1%} at κ = ∞ (second half)",
        kappa=f1.columns[0],
        first=f1.iloc[:, 0],
        last=f1.iloc[:, -1],
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    rows = with_numbers(table).sort_values(["kappa", "step"], kind="stable")
    named = rows.assign(kappa="κ = " + rows.kappa.map(kappa_text))
    return draw_curves(mean_curves(named, VALUES, ["dataset", "kappa"]), VALUES, "kappa", title(table, reported).text)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    means = late_means(table)
    found = [*_better("loss", "the training loss", means, most=0.0), *_better("f1", "F1", means, least=0.0)]
    return once_trained(found, learnt(table, ["dataset", "kappa"]))


def _better(short: str, name: str, means: pd.DataFrame, **bound: Any) -> list[Finding]:
    value, change = ("loss", "falls") if short == "loss" else ("val_f1_sampled", "rises")
    lead = paired_differences(means, value=value, by=RUN, along="kappa", base=inf)
    return [
        decided_within(
            f"{short}-better-with-kappa",
            f"in the second half of the training {name} {change} with κ (slope over the rank of κ)",
            slopes(means, value),
            value="slope",
            by=["dataset"],
            **bound,
        ),
        decided_within(
            f"{short}-best-at-infinity",
            f"κ = ∞ leads: there {name} is {'lower' if short == 'loss' else 'higher'} than at any other κ",
            lead.assign(gain=-lead.difference),
            value="gain",
            by=["dataset", "kappa"],
            **bound,
        ),
    ]


def slopes(means: pd.DataFrame, value: str) -> pd.DataFrame:
    """Slope of a value over the rank of κ, by least squares, for every data set and seed."""
    centred = means.assign(rank=means.groupby(RUN).kappa.rank(), value=means[value])
    own = centred.groupby(RUN)
    centred["rank"] -= own["rank"].transform("mean")
    centred = centred.assign(product=centred["rank"] * centred.value, square=centred["rank"] ** 2)
    sums: Any = centred.groupby(RUN, sort=False)[["product", "square"]].sum()
    return (sums["product"] / sums.square).reset_index(name="slope")


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Means over the second half of the training, and the same with all neighbours; the paper prints no numbers."""
    rows = with_numbers(table)
    late: Any = rows[rows.step > (1 - LATE) * rows.groupby("dataset").step.transform("max")]
    found = late.groupby(["dataset", "kappa"])[["loss", "val_f1_sampled", "val_f1"]].mean().reset_index()
    names = {"val_f1_sampled": "F1, this sampler", "val_f1": "F1, all neighbours", "kappa": "κ"}
    return found.assign(kappa=found.kappa.map(kappa_text)).rename(columns=names)
