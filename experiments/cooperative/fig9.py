"""Cooperative Minibatching, Figure 9: one global batch against the same number of nodes in independent batches."""

from collections.abc import Iterator
from typing import Any, Self

import pandas as pd
from pydantic import PositiveInt, model_validator

from experiments.cooperative.accuracy_runs import (
    MARGIN,
    TrainingConfig,
    best_f1,
    draw_curves,
    learnt,
    mean_curves,
    paired_differences,
    training_rows,
)
from experiments.cooperative.samplers import build_sampler
from workbench.experiment.claims import once_trained
from workbench.experiment.finding import Finding
from workbench.experiment.interval import decided_within, mean_intervals
from workbench.experiment.title import Title

RUN = ["dataset", "seed"]
VALUES = ["loss", "val_f1"]
LOSS_MARGIN = 0.02
"""Largest relative difference in the training loss that counts as none."""


class Config(TrainingConfig):
    """Training on a global batch, whole or in independent parts.

    Args:
        num_parts: number of independent minibatches, one per processing element; their gradients are averaged.
    """

    num_parts: PositiveInt

    @model_validator(mode="after")
    def _no_part_is_empty(self) -> Self:
        if self.num_parts > self.batch_size:
            raise ValueError(f"num_parts is {self.num_parts} for a batch_size of {self.batch_size}; choose fewer parts")
        return self


def run(config: Config) -> Iterator[dict[str, Any]]:
    seeds = range(1000 * config.seed, 1000 * config.seed + config.num_parts)
    yield from training_rows(config, [build_sampler(config.sampler, config.fanouts, seed=seed) for seed in seeds])


def over_samplers(table: pd.DataFrame) -> pd.DataFrame:
    """Means over the samplers at every validation, as in the paper: one row per data set, seed, P and step."""
    means: Any = table.groupby([*RUN, "num_parts", "step"], sort=False)[VALUES].mean(skipna=False)
    return means.reset_index()


def differences(table: pd.DataFrame) -> pd.DataFrame:
    """Differences of P parts from one batch with the same seed and sampler: of the best F1, and of the last loss,
    relative."""
    one = [*RUN, "sampler"]
    runs = [*one, "num_parts"]
    best: Any = best_f1(table, runs).set_index(runs).val_f1
    last: Any = table.sort_values("step", kind="stable").groupby(runs, sort=False).loss.last(skipna=False)
    whole: Any = last.xs(1, level="num_parts")
    ends = pd.DataFrame({"val_f1": best, "loss": last / whole}).reset_index()
    apart = {
        value: paired_differences(ends, value=value, by=one, along="num_parts", base=1).set_index(runs).difference
        for value in VALUES
    }
    return pd.DataFrame(apart).reset_index()


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    gaps: Any = 100 * differences(table).groupby(["dataset", "num_parts", "sampler"]).val_f1.mean().abs()
    return Title("Independent batches end at most {gaps.most:.2f} points of F1 from one batch", gaps=gaps)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    rows = over_samplers(table).sort_values(["num_parts", "step"], kind="stable")
    named = rows.assign(parts=rows.num_parts.map(_name))
    return draw_curves(mean_curves(named, VALUES, ["dataset", "parts"]), VALUES, "parts", title(table, reported).text)


def _name(num_parts: int) -> str:
    return "one batch" if num_parts == 1 else f"{num_parts} independent batches"


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows, by = differences(table), ["dataset", "num_parts", "sampler"]
    found = [
        decided_within(
            "same-f1",
            f"validation F1 with P independent batches is that with one batch, within {100 * MARGIN:g} points "
            "(equivalence test)",
            rows,
            value="val_f1",
            by=by,
            least=-MARGIN,
            most=MARGIN,
            form="+.2%",
        ),
        decided_within(
            "same-loss",
            f"and so is the training loss, within {LOSS_MARGIN:.0%} of it",
            rows,
            value="loss",
            by=by,
            least=-LOSS_MARGIN,
            most=LOSS_MARGIN,
            form="+.2%",
        ),
    ]
    return once_trained(found, learnt(table, by))


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Best F1 in percent and last loss by P, means over samplers and seeds, and their paired differences from P = 1."""
    best = best_f1(table, [*RUN, "num_parts", "sampler"]).groupby(["dataset", "num_parts"]).val_f1.mean()
    last: Any = table[table.step == table.groupby("dataset").step.transform("max")]
    found: Any = pd.DataFrame({"F1": 100 * best, "loss": last.groupby(["dataset", "num_parts"]).loss.mean()})
    runs: Any = differences(table).groupby([*RUN, "num_parts"], sort=False)
    rows = runs[VALUES].mean(skipna=False).reset_index()
    for value, name, times in (("val_f1", "F1, difference", 100), ("loss", "loss, difference", 100)):
        apart = mean_intervals(rows, value=value, by=["dataset", "num_parts"]).set_index(["dataset", "num_parts"])
        unit = " points" if value == "val_f1" else " %"
        found[name] = (
            (times * apart[value]).map("{:+.2f}".format)
            + " ± "
            + ((times * apart.half_width).map("{:.2f}".format) + unit)
        )
    return found.reset_index().rename(columns={"num_parts": "P"})
