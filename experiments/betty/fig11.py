"""Betty, Figure 11: peak memory by partitioner and number of micro-batches. Figures 12 and 16 show the same rows."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from plotly.graph_objects import Figure
from pydantic import PositiveInt
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.core.stopwatch import Stopwatch
from workbench.experiment import claims
from workbench.experiment.config import ModelKind, PartitionMethod, PointConfig
from workbench.experiment.finding import Finding
from workbench.partition.batch.metis import share_among_outputs
from workbench.plots.lines import lines
from workbench.training.profile import profile_epoch

WARM_UP_SEEDS = 256
RIVALS = ["range", "random", "metis"]


class Config(PointConfig):
    """All training nodes are one batch, cut into `num_parts` micro-batches; fanouts input layer first."""

    method: PartitionMethod
    num_parts: PositiveInt
    model: ModelKind
    fanouts: tuple[int, ...]
    heads: PositiveInt = 1
    hidden_dim: PositiveInt
    learning_rate: float
    timed_passes: PositiveInt = 3


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    prepare(config, data, data.train_idx[: max(WARM_UP_SEEDS, config.num_parts)])  # loads machine code
    batch, micro, seconds = prepare(config, data, data.train_idx)
    model = wb.build_model(
        config.model,
        in_dim=data.num_features,
        hidden_dim=config.hidden_dim,
        out_dim=data.num_classes,
        num_layers=len(config.fanouts),
        heads=config.heads,
        seed=config.seed,
    ).to(config.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    profile = profile_epoch(model, [micro], data.x, data.y, cross_entropy, optimizer, repetitions=config.timed_passes)
    inputs = wb.redundancy(micro, batch)
    yield {
        "total_inputs": inputs.total_inputs,
        "full_inputs": inputs.full_inputs,
        "largest_inputs": inputs.largest,
        "inputs_ratio": inputs.ratio,
        "largest_ratio": inputs.largest / inputs.full_inputs,
        "share_among_outputs": share_among_outputs(batch),
        **profile.row(),
        **seconds,
    }


def prepare(
    config: Config, data: Any, seeds: torch.Tensor
) -> tuple[wb.MiniBatch, list[wb.MiniBatch], dict[str, float]]:
    """The batch, its micro-batches, and the seconds that making them took."""
    watch = Stopwatch()
    with watch.phase("sample"):
        batch = wb.NeighborSampler(config.fanouts, seed=config.seed).sample(data.graph, seeds)
    with watch.phase("partition"):
        whole = config.method == "cluster"
        node_parts = wb.partition_graph(data.graph, config.num_parts, seed=config.seed) if whole else None
        parts = wb.partition_batch(
            batch, config.num_parts, method=config.method, seed=config.seed, node_parts=node_parts
        )
    with watch.phase("split"):
        micro = batch.split(parts)
    return batch, micro, {f"{phase}_seconds": seconds for phase, seconds in watch.seconds.items()}


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of this figure: two-layer GraphSAGE with the mean aggregator."""
    return table.query("model == 'sage-mean' and fanouts == '[10, 25]'")


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Figure:
    return lines(shown(table), x="num_parts", log_x=True, y="peak_bytes", group="method", facet="dataset")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    cut = shown(table).query("num_parts > 1")
    least = {"value": "peak_bytes", "among": "method", "winner": "reg", "by": ["dataset", "num_parts"]}
    return [
        claims.least("reg-least-memory", "REG needs the least peak memory at every K", cut, rivals=RIVALS, **least),
        claims.least(
            "reg-beats-blind-cuts",
            "REG needs less peak memory than range and random at every K",
            cut,
            rivals=["range", "random"],
            **least,
        ),
        claims.monotone(
            "memory-falls",
            "more micro-batches by REG need less peak memory",
            shown(table).query("method == 'reg'"),
            value="peak_bytes",
            along="num_parts",
            by=["dataset"],
            falling=True,
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Memory that REG saves against the mean of the three others: the K where it saves most, and the mean over K."""
    peaks = shown(table).query("num_parts > 1").pivot_table("peak_bytes", ["dataset", "num_parts"], "method")
    saved = 1 - peaks["reg"] / peaks[RIVALS].mean(axis=1)
    here = pd.DataFrame({"best": saved.groupby("dataset").max(), "mean over K": saved.groupby("dataset").mean()})
    paper = reported.set_index("dataset")["reduction"]
    sets = dict.fromkeys([*paper.index, *here.index])
    return pd.DataFrame(
        {
            "data set": list(sets),
            "paper: memory saved by REG": [paper.get(name) for name in sets],
            "here: at the best K": [here["best"].get(name) for name in sets],
            "here: mean over K": [here["mean over K"].get(name) for name in sets],
        }
    )
