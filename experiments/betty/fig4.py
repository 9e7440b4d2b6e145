"""Betty, Figure 4: loss and test accuracy over epochs, with the whole batch, mini-batches and micro-batches."""

from sys import float_info
from typing import Any

import pandas as pd

from experiments.betty.curves import (
    CurveConfig,
    curve_gaps,
    float32_rows,
    mean_curves,
    same_curves,
    training_curve,
)
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

Config = CurveConfig
run = training_curve
shown = float32_rows
NAMES = {"whole": "whole batch", "micro": "micro-batch", "mini": "mini-batch"}
FIRST_EPOCHS = 5
APART = 0.1  # a thousand times the tolerance of micro-batches


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    last: Any = per_run(table).set_index(["dataset", "approach", "seed"]).test_accuracy
    ends = {each: found for each, found in last.groupby("approach") if each in NAMES}
    told = ", ".join(f"{NAMES[each]} {{{each}:.0%}}" for each in ends)
    return Title(f"Test accuracy at the end: {told}", **ends)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    values = ["loss", "test_accuracy"]
    curves = mean_curves(shown(table), values=values, by=["dataset", "approach"])
    return lines(
        curves.assign(approach=curves.approach.map(NAMES)),
        x="epoch",
        y=values,
        spread={value: (f"{value}_low", f"{value}_high") for value in values},
        band=True,
        group="approach",
        facet="dataset",
        title=title(table, reported).text,
    )


def per_run(table: pd.DataFrame) -> pd.DataFrame:
    """One row per run: the fluctuation of its loss, and its last test accuracy."""
    runs: Any = shown(table).sort_values("epoch", kind="stable").groupby(["dataset", "approach", "seed"], sort=False)
    found = {"fluctuation": runs.loss.agg(fluctuation), "test_accuracy": runs.test_accuracy.last()}
    return pd.DataFrame(found).reset_index().assign(test_error=lambda rows: 1 - rows.test_accuracy)


def fluctuation(losses: pd.Series) -> float:
    """Mean relative distance of a loss from the mean of its neighbours, over the second half of a run."""
    late = losses.iloc[len(losses) // 2 :]
    middle = (late.shift(1) + late.shift(-1)) / 2
    return float(((late - middle).abs() / middle).mean())


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    runs, by = per_run(table), ["dataset"]
    rows: Any = shown(table)
    evaluated = rows[rows.test_accuracy.notna() | (rows.epoch % rows.evaluate_every == 0)]
    learnt = claims.trained(
        evaluated,
        value="test_accuracy",
        along="epoch",
        by=["dataset", "approach"],
    )
    first = evaluated.query("epoch <= @FIRST_EPOCHS").assign(test_error=lambda rows: 1 - rows.test_accuracy)
    compared = [
        claims.within(
            "mini-batches-differ",
            f"mini-batches do not: their losses differ by {APART} and more",
            curve_gaps(shown(table), among="mini"),
            value="gap",
            by=["dataset", "seed"],
            least=APART,
            most=float_info.max,  # the gap of a run that diverged is infinite, which shows nothing
            form=".2f",
        ),
        claims.least(
            "mini-batches-first",
            f"in the first {FIRST_EPOCHS} epochs mini-batches have the lower test error",
            first,
            value="test_error",
            among="approach",
            winner="mini",
            rivals=["whole"],
            by=["dataset", "epoch"],
        ),
        claims.least(
            "mini-batches-fluctuate",
            "in the second half the whole batch's losses fluctuate less, in proportion",
            runs,
            value="fluctuation",
            among="approach",
            winner="whole",
            rivals=["mini"],
            by=by,
        ),
        claims.least(
            "mini-batches-end-lower",
            "in the end the whole batch has the lower test error",
            runs,
            value="test_error",
            among="approach",
            winner="whole",
            rivals=["mini"],
            by=by,
        ),
    ]
    return [*same_curves(table), *claims.once_trained(compared, learnt)]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Steps per epoch in the paper and here, and the last losses and accuracies; the paper gives no other numbers."""
    columns = ["num_steps", "loss", "train_accuracy", "test_accuracy"]
    last: Any = (
        shown(table)
        .sort_values("epoch", kind="stable")
        .groupby(["dataset", "approach", "seed"], sort=False)[columns]
        .last()
    )
    here = last.groupby(["dataset", "approach"], sort=False).mean().reset_index()
    here.insert(2, "steps, paper", here.approach.map(reported.set_index("approach").num_steps))
    names = {"num_steps": "steps, here", "loss": "last loss", "train_accuracy": "last train accuracy"}
    return here.rename(columns={**names, "test_accuracy": "last test accuracy"})
