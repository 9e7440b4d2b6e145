"""Training curves of the whole batch, of micro-batches and of mini-batches: rows, gaps, means and findings."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Literal, Self

import pandas as pd
from pydantic import NonNegativeInt, PositiveInt, model_validator

from workbench.experiment import claims
from workbench.experiment.config import ModelConfig, PartitionMethod
from workbench.experiment.finding import Finding
from workbench.experiment.interval import mean_intervals

LOSS_TOLERANCE = {"float32": 1e-4, "float64": 1e-8}
"""Largest allowed difference between losses on the same batches, by the precision of parameters and features.

Micro-batches are summed in another order than the whole batch, so the last bits of loss and gradients differ. With 16
rounding errors per epoch (log2 of the terms of a sum of 10⁵) and a loss of about 1, the difference is
16 · 2⁻²⁴ = 1e-6 per epoch in float32, or 1e-4 after a hundred epochs if training neither damps nor amplifies it. In
float64 the same estimate is 2e-13.
"""

ACCURACY_TOLERANCE = 0.001
"""Largest allowed difference between accuracies: a node whose best two classes tie within rounding may flip."""

ROUNDING_TIMES = 10

_SAME = ["dataset", "model", "precision", "seed"]
_CURVE = [*_SAME, "num_parts", "moved"]


class CurveConfig(ModelConfig):
    """Training with Adam over epochs of all training nodes.

    Args:
        approach: "whole", one step per epoch on the whole batch; "micro", the same step accumulated over `num_parts`
            micro-batches; or "mini", `num_parts` steps per epoch on mini-batches.
        num_parts: number of micro- or mini-batches; 1 for the whole batch.
        moved: 0: the initial weights; n > 0: the n-th random half of them is one unit in the last place larger, to
            measure the effect of rounding on a run.
        method: of `workbench.partition_batch`, which cuts the batch.
        precision: of parameters and features.
        learning_rate: of Adam.
        epochs: number of epochs.
        evaluate_every: epochs between evaluations; the last epoch is always evaluated.
    """

    approach: Literal["whole", "micro", "mini"]
    num_parts: PositiveInt = 1
    moved: NonNegativeInt = 0
    method: PartitionMethod = "auto"
    precision: Literal["float32", "float64"] = "float32"
    learning_rate: float
    epochs: PositiveInt
    evaluate_every: PositiveInt = 1

    @model_validator(mode="after")
    def _whole_is_one_part(self) -> Self:
        if (self.approach == "whole") != (self.num_parts == 1):
            raise ValueError(
                f"approach is {self.approach!r} and num_parts is {self.num_parts}; the whole batch has one part; "
                "give micro and mini two or more"
            )
        return self


def training_curve(config: CurveConfig) -> Iterator[dict[str, Any]]:
    """Yield one row per epoch: `epoch`, `num_steps`, `loss` and, in epochs that are evaluated, `train_accuracy`,
    `val_accuracy` and `test_accuracy` of full-neighbour inference, and `majority`, the largest class's share of the
    test nodes."""
    import torch
    from torch.nn.functional import cross_entropy

    from workbench.sampling.neighbor import NeighborSampler
    from workbench.training.epoch import epoch_steps, train_epochs
    from workbench.training.evaluate import majority_accuracy, split_accuracies

    data, dtype = config.dataset.load(), getattr(torch, config.precision)
    data = replace(data, x=data.x.to(dtype))
    model = config.build(data).to(dtype)
    if config.moved:
        _move(model, config.moved)
    cut = "num_batches" if config.approach == "mini" else "num_parts"
    options = {cut: config.num_parts, "method": config.method, "seed": config.seed}
    sampler = NeighborSampler(config.fanouts, seed=config.seed)
    majority = majority_accuracy(data.y[data.test_idx])
    yield from train_epochs(
        model,
        lambda epoch: epoch_steps(data.graph, data.train_idx, sampler=sampler, epoch=epoch, **options),
        data.x,
        data.y,
        cross_entropy,
        torch.optim.Adam(model.parameters(), lr=config.learning_rate),
        epochs=config.epochs,
        evaluate=lambda: split_accuracies(model, data) | {"majority": majority},
        evaluate_every=config.evaluate_every,
    )


def _move(model: Any, number: int) -> None:
    """Replace a random half of the parameters with the next larger floating-point number."""
    import torch

    from workbench.core.randomness import uniform

    with torch.no_grad():
        for place, values in enumerate(model.parameters()):
            chosen = uniform(number * 1000 + place, torch.arange(values.numel())) < 0.5
            larger = torch.nextafter(values, torch.full_like(values, torch.inf))
            values.copy_(torch.where(chosen.view_as(values).to(values.device), larger, values))


def float32_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of runs in float32, which the figures show."""
    return table.query("precision == 'float32'")


def curve_gaps(table: pd.DataFrame, *, value: str = "loss", among: str = "micro") -> pd.DataFrame:
    """Largest difference of each curve from the whole batch's with the same data set, model, precision and seed.

    Args:
        table: rows of `training_curve`.
        value: column to compare.
        among: "micro" or "mini": this approach against the whole batch; "moved": the whole batch from moved initial
            weights against the whole batch.

    Returns:
        One row per curve: what both curves share, `num_parts`, `moved`, and `gap`, the largest absolute difference over
        the epochs; infinite if one curve has an epoch, or a value in an epoch, that the other one has not.
    """
    moved, whole = table.moved > 0, table.approach == "whole"
    chosen = whole & moved if among == "moved" else (table.approach == among) & ~moved
    own, other = table.loc[chosen, [*_CURVE, "epoch", value]], table.loc[whole & ~moved, [*_SAME, "epoch", value]]
    other = other.dropna(subset=["epoch"])  # rows of failed runs, which have no curve
    pairs = own[_CURVE].drop_duplicates().merge(other[_SAME].drop_duplicates())
    both = pairs.merge(own).merge(
        pairs.merge(other), on=[*_CURVE, "epoch"], how="outer", suffixes=("", "_whole"), indicator="found"
    )
    ours, theirs = both[value], both[f"{value}_whole"]
    broken = (both.found != "both") | (ours.isna() != theirs.isna())
    gaps: Any = both.assign(gap=(ours - theirs).abs().mask(broken, inf)).groupby(_CURVE).gap.max()
    return pairs.merge(gaps.reset_index())


def mean_curves(table: pd.DataFrame, *, values: Sequence[str], by: Sequence[str]) -> pd.DataFrame:
    """Means over seeds at every epoch, with the ends of their confidence intervals in `…_low` and `…_high`.

    Args:
        table: rows of `training_curve`.
        values: columns to average; intervals are clipped to possible losses and accuracies.
        by: columns that tell the curves apart.
    """
    found = None
    for value in values:
        mean = mean_intervals(table, value=value, by=[*by, "epoch"]).drop(columns=["half_width", "runs"])
        most = 1.0 if value.endswith("accuracy") else None
        mean[["low", "high"]] = mean[["low", "high"]].clip(0.0, most)
        mean = mean.rename(columns={"low": f"{value}_low", "high": f"{value}_high"})
        found = mean if found is None else found.merge(mean, on=[*by, "epoch"], how="outer")
    assert found is not None, "there are values"
    return found


def same_curves(table: pd.DataFrame) -> list[Finding]:
    """Check that micro-batches train like the whole batch: the same losses in each precision, the same accuracies and,
    given runs from moved weights, no larger differences than rounding explains.

    Args:
        table: rows of `training_curve`.
    """
    losses, by = curve_gaps(table), ["dataset", "model", "num_parts", "seed"]
    found = [
        claims.within(
            f"same-losses-{precision}",
            f"micro-batches follow the losses of the whole batch: largest difference {most:g} in {precision}",
            losses.query("precision == @precision"),
            value="gap",
            by=by,
            most=most,
            form=".1e",
        )
        for precision, most in LOSS_TOLERANCE.items()
        if (losses.precision == precision).any()
    ]
    accuracies = claims.within(
        "same-accuracies",
        f"and its test accuracy: largest difference {ACCURACY_TOLERANCE:.1%}",
        curve_gaps(table, value="test_accuracy"),
        value="gap",
        by=[*by, "precision"],
        most=ACCURACY_TOLERANCE,
        form=".2%",
    )
    return [*found, accuracies, *([_no_farther_than_rounding(table, losses)] if (table.moved > 0).any() else [])]


def _no_farther_than_rounding(table: pd.DataFrame, losses: pd.DataFrame) -> Finding:
    moved = curve_gaps(table, among="moved").query("gap < inf")  # a run that diverged shows nothing about rounding
    moved = moved.groupby(_SAME).gap.max().reset_index()
    both = losses.merge(moved, on=_SAME, suffixes=("", "_moved"))
    least = both.precision.map(LOSS_TOLERANCE)
    return claims.within(
        "no-farther-than-rounding",
        f"in any case micro-batches are no farther off than {ROUNDING_TIMES} times what moving half of the initial "
        "weights by one unit in the last place does to the whole batch, or than above",
        both.assign(times=both.gap / both.gap_moved.clip(lower=least / ROUNDING_TIMES)),
        value="times",
        by=["dataset", "model", "precision"],
        most=ROUNDING_TIMES,
        form=".2g",
    )
