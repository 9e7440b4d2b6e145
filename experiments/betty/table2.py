"""Betty, Table 2: memory of REG's micro-batches. Figure 9 is a view of its rows: their in-degrees."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import torch
from pydantic import PositiveInt
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.experiment import claims
from workbench.experiment.config import ModelConfig, PartitionMethod
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.memory.estimator import estimator_for
from workbench.memory.training_setup import TrainingSetup
from workbench.meter.limit import free_bytes
from workbench.training.profile import profile_epoch

USABLE = 0.8  # share of free memory: the OOM killer may end other processes than this one


class Config(ModelConfig):
    """All training nodes form one batch.

    Args:
        method: of `partition_batch`, which cuts the batch.
        num_parts: number of micro-batches.
        learning_rate: of Adam.
    """

    method: PartitionMethod
    num_parts: PositiveInt
    learning_rate: float


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    batch = wb.NeighborSampler(config.fanouts, seed=config.seed).sample(data.graph, data.train_idx)
    micro = batch.split(wb.partition_batch(batch, config.num_parts, method=config.method, seed=config.seed))
    model = config.build(data)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    estimate = estimator_for(TrainingSetup(model, optimizer=optimizer), batch)
    needed = [estimate(mb, accumulating=part > 0).peak_bytes for part, mb in enumerate(micro)]
    peaks: Sequence[int | None] = [None] * len(micro)
    if max(needed) <= USABLE * free_bytes(config.device):
        peaks = profile_epoch(model, [micro], data.x, data.y, cross_entropy, optimizer).part_peak_bytes
    for part, mb in enumerate(micro):
        yield {
            "part": part,
            "num_seeds": mb.num_seeds,
            "num_inputs": mb.num_inputs,
            "num_edges": mb.num_edges,
            "estimate_bytes": needed[part],
            "peak_bytes": peaks[part],
            **degrees(mb, config.fanouts[-1]),
        }


def degrees(mb: wb.MiniBatch, fanout: int) -> dict[str, int]:
    """Number of seeds of a micro-batch by their in-degree in it, up to the fanout."""
    counts = torch.bincount(mb.blocks[-1].indptr.diff(), minlength=fanout + 1)
    return {f"degree_{degree}": int(count) for degree, count in enumerate(counts)}


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Micro-batches of two parts and more, with their peak memory, measured or else estimated."""
    rows = table.query("num_parts > 1")
    return rows.assign(needed_bytes=rows.peak_bytes.astype(float).fillna(rows.estimate_bytes))


def apart(table: pd.DataFrame) -> pd.DataFrame:
    """Imbalance of the parts in memory and in seeds: (most − least) ÷ most."""
    columns = {"memory": "needed_bytes", "seeds": "num_seeds"}
    cuts: Any = shown(table).groupby(["dataset", "num_parts"], sort=False)
    found = {name: 1 - cuts[column].min() / cuts[column].max() for name, column in columns.items()}
    return pd.DataFrame(found).reset_index()


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    found: Any = apart(table).set_index(["dataset", "num_parts"])
    return Title(
        "REG's parts are {memory:.0%} apart in memory, {seeds:.0%} in seeds", memory=found.memory, seeds=found.seeds
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.bars import bars

    given = [_bar(row) for row in shown(table).itertuples()]
    return bars(given, axes={bar.panel: "micro-batch" for bar in given}, title=title(table, reported).text)


def _bar(row: Any) -> Any:
    from workbench.plots.bars import Bar

    panel, measured = f"{row.dataset} · K = {row.num_parts}", pd.notna(row.peak_bytes)
    hover = f"{row.num_seeds:,} seeds, {row.num_edges:,} edges, {row.num_inputs:,} inputs"
    return Bar(panel, str(row.part), int(row.needed_bytes), measured=measured, hover=hover)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    found = apart(table)
    return [
        claims.least(
            "unequal-in-memory",
            "the parts of a cut are farther apart in memory than in seeds",
            found.melt(["dataset", "num_parts"], ["memory", "seeds"], "of", "apart"),
            value="apart",
            among="of",
            winner="seeds",
            rivals=["memory"],
            by=["dataset", "num_parts"],
        ),
        claims.monotone(
            "more-apart",
            "four parts are farther apart than two",
            found,
            value="memory",
            along="num_parts",
            by=["dataset"],
        ),
    ]


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """Imbalance in memory on the paper's data set."""
    found: Any = apart(table)
    memory = found[found.dataset.str.endswith("arxiv")].set_index(["dataset", "num_parts"]).memory
    parts = memory.index.get_level_values("num_parts")
    return {"two-parts-apart": memory[parts == 2], "four-parts-apart": memory[parts == 4]}


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Imbalance of the parts, (most − least) ÷ most, in the paper and here, measured and estimated."""
    paper = reported.groupby("num_parts").peak_gb.agg(lambda sizes: 1 - sizes.min() / sizes.max())
    estimated = apart(table.assign(peak_bytes=float("nan")))
    here = apart(table).assign(**{"memory, estimated": estimated.memory})
    here.insert(2, "memory, paper", here.num_parts.map(paper))
    return here.rename(columns={"num_parts": "K", "memory": "memory, here", "seeds": "seeds, here"})
