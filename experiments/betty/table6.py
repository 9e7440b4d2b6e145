"""Betty, Table 6: micro-batches of one batch against independently sampled mini-batches."""

from collections.abc import Iterator
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import PositiveInt
from torch.nn.functional import cross_entropy

import workbench as wb
from experiments.betty.fig12 import PHASES
from workbench.core.randomness import permutation
from workbench.experiment import claims
from workbench.experiment.config import ModelConfig, PartitionMethod
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.meter.stopwatch import Stopwatch
from workbench.training.profile import profile_epoch

WARM_UP_SEEDS = 256


class Config(ModelConfig):
    """One epoch over all training nodes.

    Args:
        approach: "micro", one step accumulated over `num_parts` micro-batches; or "mini", `num_parts` steps on
            mini-batches of equal size.
        num_parts: number of micro- or mini-batches.
        method: of `partition_batch`, which cuts the batch into micro-batches.
        learning_rate: of Adam.
        timed_passes: number of timed epochs.
    """

    approach: Literal["micro", "mini"]
    num_parts: PositiveInt
    method: PartitionMethod | None = None
    learning_rate: float
    timed_passes: PositiveInt = 3


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    prepare(config, data, data.train_idx[: max(WARM_UP_SEEDS, config.num_parts)])  # loads compiled kernels
    steps, seconds = prepare(config, data, data.train_idx)
    model = config.build(data)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    profile = profile_epoch(model, steps, data.x, data.y, cross_entropy, optimizer, repetitions=config.timed_passes)
    inputs = [mb.num_inputs for step in steps for mb in step]
    yield {"total_inputs": sum(inputs), "largest_inputs": max(inputs), **profile.row(), **seconds}


def prepare(config: Config, data: Any, seeds: torch.Tensor) -> tuple[list[list[wb.MiniBatch]], dict[str, float]]:
    """The micro-batches of each optimizer step, and the seconds that it took to prepare them."""
    watch, sampler = Stopwatch(), wb.NeighborSampler(config.fanouts, seed=config.seed)
    if config.approach == "mini":
        shuffled = seeds[permutation(config.seed, len(seeds))]
        with watch.phase("sample"):
            cut = enumerate(shuffled.tensor_split(config.num_parts))
            steps = [[sampler.sample(data.graph, part, step=step)] for step, part in cut]
    else:
        with watch.phase("sample"):
            batch = sampler.sample(data.graph, seeds)
        with watch.phase("partition"):
            parts = wb.partition_batch(batch, config.num_parts, method=config.method or "auto", seed=config.seed)
        with watch.phase("split"):
            steps = [batch.split(parts)]
    return steps, {f"{phase}_seconds": seconds for phase, seconds in watch.seconds.items()}


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    most = table.num_parts.max()
    loaded: Any = table.query("num_parts == @most").pivot_table("total_inputs", "dataset", "approach")
    both = {"micro", "mini"} <= {*loaded}
    shares: Any = (loaded["micro"] / loaded["mini"]).dropna() if both else pd.Series(dtype=float)
    text = "{most} micro-batches load {shares:.0%} of the input nodes of {most} mini-batches"
    return Title(text, most=most, shares=shares)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    rows = pd.concat([trained(table), paper_rows(reported)])
    return lines(
        rows.assign(approach=rows.approach + "-batch"),
        x="num_parts",
        log_x=True,
        y=["total_inputs", "peak_bytes", "training_seconds"],
        group="approach",
        facet="dataset",
        title=title(table, reported).text,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    several = trained(table).query("num_parts > 1")
    least = {"among": "approach", "winner": "micro", "rivals": ["mini"], "by": ["dataset", "num_parts"]}
    return [
        claims.least(
            "micro-fewer-inputs",
            "micro-batches load fewer input nodes at every K",
            several,
            value="total_inputs",
            **least,
        ),
        claims.monotone(
            "gap-widens",
            "mini-batches load more times the inputs of micro-batches, the larger K",
            relative(trained(table)),
            value="inputs",
            along="num_parts",
            by=["dataset"],
        ),
        claims.least(
            "micro-less-memory", "micro-batches need less peak memory at every K", several, value="peak_bytes", **least
        ),
        claims.least(
            "micro-faster",
            "training on micro-batches takes less time at every K, data movement left out",
            several,
            value="training_seconds",
            timed=True,
            **least,
        ),
    ]


def trained(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with the seconds that the paper gives: of training, without the movement of data."""
    return table.assign(training_seconds=table[PHASES].sum(axis=1, skipna=False))


def paper_rows(reported: pd.DataFrame) -> pd.DataFrame:
    """The paper's values as rows of a data set of their own."""
    seconds = {"training_seconds": reported.epoch_seconds}
    return reported.assign(dataset="ogbn-products (paper)", peak_bytes=1e9 * reported.peak_gb, **seconds)


def relative(table: pd.DataFrame) -> pd.DataFrame:
    """Ratios of mini-batches to micro-batches."""
    values = {"total_inputs": "inputs", "peak_bytes": "memory", "training_seconds": "time"}
    wide = table.pivot_table(list(values), ["dataset", "num_parts"], "approach")
    columns = {short: wide[long]["mini"] / wide[long]["micro"] for long, short in values.items()}
    return pd.DataFrame(columns).reset_index()


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """Inputs and memory of mini-batches relative to micro-batches at the largest K of the paper, and the time saved."""
    several: Any = trained(table).query("num_parts > 1")
    most: Any = several[several.num_parts == reported.num_parts.max()]
    ways: dict[str, Any] = {"among": "approach", "by": ["dataset", "num_parts"]}
    return {
        "inputs-at-64": claims.method_ratios(most, value="total_inputs", between=("mini", "micro"), **ways),
        "memory-at-64": claims.method_ratios(most, value="peak_bytes", between=("mini", "micro"), **ways),
        "time-saved": 1 - claims.method_ratios(several, value="training_seconds", between=("micro", "mini"), **ways),
    }


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Ratios of mini-batches to micro-batches here and in the paper, and the paper's own values."""
    both = pd.concat([relative(paper_rows(reported)), relative(trained(table))])
    ratios = both.pivot_table(["inputs", "memory", "time"], "num_parts", "dataset")[["inputs", "memory", "time"]]
    ratios.columns = [f"{value}, {where}" for value, where in ratios.columns]
    own = reported.pivot(index="num_parts", columns="approach", values=["total_inputs", "peak_gb", "epoch_seconds"])
    units = {"total_inputs": "inputs", "peak_gb": "GB", "epoch_seconds": "s"}
    own.columns = [f"paper, {approach}-batch {units[value]}" for value, approach in own.columns]
    return ratios.join(own).rename_axis("K").reset_index()
