"""Cooperative Minibatching, Table 3: validation F1 with all neighbours, after training on dependent minibatches."""

from collections.abc import Iterator
from math import inf
from typing import Any, Literal

import pandas as pd
from pydantic import PositiveInt

import workbench as wb
from experiments.cooperative.accuracy_runs import (
    MARGIN,
    TrainingConfig,
    best_f1,
    learnt,
    paired_differences,
    training_rows,
)
from experiments.cooperative.samplers import build_sampler
from workbench.experiment.claims import once_trained
from workbench.experiment.finding import Finding
from workbench.experiment.interval import CONFIDENCE, decided_within, mean_intervals
from workbench.experiment.title import Title

RUN = ["dataset", "seed"]
NO_LOSS = 256
"""The largest κ at which the paper sees no loss."""


class Config(TrainingConfig):
    """Training on dependent minibatches.

    Args:
        kappa: batches per group of dependent ones; 1: independent batches; "inf": the same variates in all of them.
    """

    kappa: PositiveInt | Literal["inf"]


def run(config: Config) -> Iterator[dict[str, Any]]:
    dependence = wb.Smoothed(inf if config.kappa == "inf" else config.kappa)
    sampler = build_sampler(config.sampler, config.fanouts, seed=config.seed, dependence=dependence)
    yield from training_rows(config, [sampler], validate_sampled=True)


def with_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """The table with κ as a number: "inf" is a text in configurations."""
    return table.assign(kappa=table.kappa.astype(float))


def kappa_text(kappa: float) -> str:
    """κ as people write it."""
    return "∞" if kappa == inf else f"{kappa:g}"


def differences(table: pd.DataFrame) -> pd.DataFrame:
    """Differences of the best F1 from that at κ = 1 with the same seed, one row per data set, seed and larger κ."""
    best = best_f1(with_numbers(table), [*RUN, "kappa"])
    return paired_differences(best, value="val_f1", by=RUN, along="kappa", base=1.0)


def difference_intervals(table: pd.DataFrame) -> pd.DataFrame:
    """Mean differences with 95 % confidence intervals, which hold for all κ up to 256 at once (Bonferroni)."""
    rows = differences(table)
    number = rows.kappa[rows.kappa <= NO_LOSS].nunique()
    confidence = 1 - (1 - CONFIDENCE) / max(1, number)
    return mean_intervals(rows, value="difference", by=["dataset", "kappa"], confidence=confidence)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    below: Any = -100 * difference_intervals(table).set_index(["dataset", "kappa"]).difference.clip(upper=0)
    return Title(
        "Validation F1 is at most {below.most:.2f} points below that of independent batches", below=below.abs()
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import difference_dots

    rows = difference_intervals(table).sort_values("kappa", kind="stable")
    return difference_dots(
        rows.assign(kappa="κ = " + rows.kappa.map(kappa_text)),
        x="kappa",
        y="difference",
        group="dataset",
        facet="dataset",
        margin=MARGIN,
        y_title="F1, difference from κ = 1",
        title=title(table, reported).text,
        subtitle=f"mean over seeds of paired runs, 95 % confidence intervals; shaded: ± {100 * MARGIN:g} points",
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    by_dataset: Any = differences(table).groupby("dataset", sort=False)
    found = {dataset: _of_dataset(dataset, rows) for dataset, rows in by_dataset}
    shown = {dataset: _learnt(table, dataset) for dataset in found}
    return [one for dataset, of_it in found.items() for one in once_trained(of_it, shown[dataset])]


def _learnt(table: Any, dataset: str) -> Finding:
    return learnt(table[table.dataset == dataset], ["dataset", "kappa"], name=f"trained-{dataset}")


def _of_dataset(dataset: str, rows: pd.DataFrame) -> list[Finding]:
    how: Any = {"value": "difference", "by": ["kappa"], "form": "+.2%"}
    no_loss, endless = rows.query("kappa <= @NO_LOSS"), rows.query("kappa == @inf")
    same = f"{dataset}: up to κ = {NO_LOSS} F1 is that at κ = 1, within {100 * MARGIN:g} points (equivalence test)"
    lower = f"{dataset}: without new neighbourhoods (κ = ∞) F1 is lower than at κ = 1"
    found = [decided_within(f"infinity-loses-{dataset}", lower, endless, most=0.0, **how)]
    if len(no_loss):
        found.insert(0, decided_within(f"no-loss-{dataset}", same, no_loss, least=-MARGIN, most=MARGIN, **how))
    return found


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """F1 that is lost on reddit without new neighbourhoods, if the models have learnt."""
    means = difference_intervals(table)
    lost: Any = means[means.dataset.str.endswith("reddit") & (means.kappa == inf)]
    lost = lost[lost.dataset.map(lambda dataset: _learnt(table, dataset).held).astype(bool)]
    return {"infinity-loses-on-reddit": -lost.set_index("dataset").difference}


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """In percent: the paper's F1 by κ, ours with its 95 % interval, and the paired difference from κ = 1, in points."""
    best = best_f1(with_numbers(table), [*RUN, "kappa"])
    here = mean_intervals(best, value="val_f1", by=["dataset", "kappa"])
    apart = difference_intervals(table).rename(columns={"difference": "val_f1"})
    parts = [
        with_numbers(reported).assign(
            dataset=reported.dataset + " (paper)", told=_percent(reported.f1 / 100, reported.f1_pm / 100)
        ),
        here.assign(told=_percent(here.val_f1, here.half_width)),
        apart.assign(dataset=apart.dataset + ", difference", told=_percent(apart.val_f1, apart.half_width, sign="+")),
    ]
    rows = pd.concat(parts)
    wide = rows.pivot(index="dataset", columns="kappa", values="told").loc[rows.dataset.unique()]
    return wide.rename(columns=lambda kappa: f"κ = {kappa_text(kappa)}").rename_axis(columns=None).reset_index()


def _percent(value: pd.Series, half: pd.Series, *, sign: str = "") -> Any:
    return (100 * value).map(f"{{:{sign}.2f}}".format) + " ± " + (100 * half).map("{:.2f}".format)
