"""Partitioning a batch of random seeds: one prepared batch beside separate calls, and a method beside REG.

Both sides run alternately in one process. Beside separate calls, the batch is cut into every number of parts, prepared
once or once per number. Beside REG, each number of parts is a row of its own, with the inputs that both partitions
load beyond the batch's (their excess).
"""

from collections.abc import Iterator
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import Field, PositiveInt

import workbench as wb
from experiments.performance import speedup
from experiments.performance.graphs import GraphPoint
from experiments.performance.timing import interleaved
from workbench.core.randomness import Purpose, permutation, stream
from workbench.experiment import claims
from workbench.experiment.config import PartitionMethod
from workbench.experiment.finding import Finding

SEPARATE = "separate calls"
EXCESS = 0.8  # of REG's, claimed at the median
FASTER_THAN_SEPARATE, FASTER_THAN_REG = 1 / 0.6, 1 / 0.7


class Config(GraphPoint):
    """One batch and one method; fanouts input layer first.

    Args:
        num_seeds: random nodes of the graph that form the batch.
        method: of `partition_batch`, whose objective is "total".
        num_parts: numbers of parts to cut the batch into.
        beside: the same method called once per number of parts, or REG.
    """

    num_seeds: PositiveInt
    fanouts: tuple[int, ...]
    method: PartitionMethod
    num_parts: tuple[PositiveInt, ...] = Field(min_length=1)
    beside: Literal["separate calls", "reg"]


def run(config: Config) -> Iterator[dict[str, Any]]:
    graph, _ = config.load()
    order = permutation(stream(config.seed, Purpose.SHUFFLE), graph.num_nodes)
    batch = wb.NeighborSampler(config.fanouts, seed=config.seed).sample(graph, order[: config.num_seeds])
    about = {"graph": config.graph, "outputs": batch.num_seeds}
    if config.beside == SEPARATE:
        yield {**about, "cuts": len(config.num_parts), **_beside_separate_calls(batch, config)}
        return
    for num_parts in config.num_parts:
        yield {**about, "parts": num_parts, **_beside_reg(batch, num_parts, config)}


def _beside_separate_calls(batch: wb.MiniBatch, config: Config) -> dict[str, Any]:
    options: dict[str, Any] = {"method": config.method, "objective": "total", "seed": config.seed}

    def prepared() -> list[torch.Tensor]:
        cuts = wb.partition.Partitioner(**options).prepare(batch)
        return [cuts.cut(num_parts).assignment for num_parts in config.num_parts]

    def separate() -> list[torch.Tensor]:
        return [wb.partition_batch(batch, num_parts, **options) for num_parts in config.num_parts]

    if not all(map(torch.equal, prepared(), separate())):
        raise RuntimeError("a prepared batch was cut unlike one of its own: the times do not compare")
    return _times(interleaved(prepared, separate, repeats=config.repeats, warmup=1))


def _beside_reg(batch: wb.MiniBatch, num_parts: int, config: Config) -> dict[str, Any]:
    given: dict[str, Any] = {"objective": "total", "seed": config.seed}

    def ours() -> torch.Tensor:
        return wb.partition_batch(batch, num_parts, method=config.method, **given)

    def reg() -> torch.Tensor:
        return wb.partition_batch(batch, num_parts, method="reg", seed=config.seed)

    excess = [wb.redundancy(batch.split(part()), batch).ratio - 1 for part in (ours, reg)]
    return {
        "excess": excess[0],
        "reg_excess": excess[1],
        "excess_ratio": excess[0] / excess[1],
        **_times(interleaved(ours, reg, repeats=config.repeats, warmup=0)),
    }


def _times(columns: dict[str, float]) -> dict[str, float]:
    return {name.replace("theirs", "rival"): value for name, value in columns.items()}


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    rows = table.assign(beside="beside " + table.beside, layers=table.fanouts.map(len).map("{} layers".format))
    title = "Seconds of separate calls, and of REG, over those of one prepared batch and of each method"
    axis = "rival's time ÷ ours"
    return speedup.draw_ratios(rows, panel="beside", case=["graph", "layers"], group="method", title=title, axis=axis)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    is_separate = table.beside == SEPARATE
    separate, reg = table[is_separate], table[~is_separate & (table.method == "auto")]
    findings = []
    if len(separate):
        told = f"separate calls take {FASTER_THAN_SEPARATE:.2f} times as long as cuts of one prepared batch"
        bounds = {"value": "ratio_best", "least": FASTER_THAN_SEPARATE, "timed": True}
        findings.append(_at_median("prepared-once", told, separate, **bounds))
    if len(reg):
        told = f"REG takes {FASTER_THAN_REG:.2f} times as long as auto"
        bounds = {"value": "ratio_best", "least": FASTER_THAN_REG, "timed": True}
        findings.append(_at_median("total-seconds", told, reg, **bounds))
        told = f"auto loads at most {EXCESS:g} times the redundant inputs of REG"
        findings.append(_at_median("total-excess", told, reg, value="excess_ratio", most=EXCESS))
    return findings


def _at_median(name: str, told: str, rows: Any, *, value: str, **bounds: Any) -> Finding:
    by = ["graph", "num_parts", "method"]
    return claims.median_within(name, f"{told}, in the median case", rows, value=value, by=by, form=".2f", **bounds)


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Ratios over all cases, per rival and method; `excess` is the median of the inputs' excess relative to REG's."""
    groups: Any = table.groupby(["beside", "method"], sort=False)
    named = {"partitioning": table}
    named |= {f"partitioning by {method} beside {rival}": rows for (rival, method), rows in groups}
    excess = [rows.excess_ratio.median() if "excess_ratio" in rows else None for rows in named.values()]
    return speedup.summary(named).assign(excess=excess)
