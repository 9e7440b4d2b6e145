"""Gather, aggregation and sampling of a device beside its bandwidth, measured in turns by a copy of as many bytes."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import PositiveInt

import workbench as wb
from experiments.performance.timing import interleaved
from workbench.experiment import claims
from workbench.experiment.config import DataPointConfig
from workbench.experiment.finding import Finding
from workbench.kernels.gather import gather_unchecked
from workbench.kernels.segment import segment_mean

FANOUTS = (10, 25)
LEAST = {"gather": 1 / 2, "aggregate": 1 / 3}

Work = tuple[Callable[[], Any], int]
"""A call, and the bytes that it reads and writes at least."""


class Config(DataPointConfig):
    """One operation on the batch of some seeds.

    Args:
        operation: gather the rows of the batch's inputs, average them by destination, or sample the batch.
        width: of a row of float32; without effect on sampling.
        num_seeds: the first training nodes are the batch's seeds.
        repeats: rounds that are timed.
    """

    operation: Literal["gather", "aggregate", "sample"]
    width: PositiveInt = 1
    num_seeds: PositiveInt
    repeats: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    works = {"gather": gather, "aggregate": aggregate, "sample": sample}
    call, moved_bytes = works[config.operation](config, data)
    source = torch.empty(max(1, moved_bytes // 2), dtype=torch.uint8, device=config.device)
    target = torch.empty_like(source)
    times = interleaved(
        lambda: synchronized(call, config.device),
        lambda: synchronized(lambda: target.copy_(source), config.device),
        repeats=config.repeats,
    )
    yield {
        "moved_bytes": moved_bytes,
        "seconds": times["ours_seconds"],
        "gb_per_second": moved_bytes / times["ours_seconds"] / 1e9,
        "copy_gb_per_second": moved_bytes / times["theirs_seconds"] / 1e9,
        "share": times["ratio_median"],
    }


def synchronized(call: Callable[[], Any], device: str) -> Any:
    """Call, and wait for the device."""
    result = call()
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return result


def gather(config: Config, data: Any) -> Work:
    batch = _batch(config, data)
    ids = batch.node_ids.to(config.device)
    x = torch.ones(data.graph.num_nodes, config.width, device=config.device)
    return lambda: gather_unchecked(x, ids), 2 * len(ids) * config.width * x.element_size() + ids.nbytes


def aggregate(config: Config, data: Any) -> Work:
    block = _batch(config, data).to(config.device).blocks[0]
    x = torch.ones(block.num_src, config.width, device=config.device)
    rows = block.num_edges + block.num_dst
    return lambda: segment_mean(block, x), rows * config.width * x.element_size() + block.indices.nbytes


def sample(config: Config, data: Any) -> Work:
    graph, seeds = data.graph.to(config.device), data.train_idx[: config.num_seeds].to(config.device)
    sampler = wb.NeighborSampler(FANOUTS, seed=config.seed)
    steps = iter(range(10**9))
    moved_bytes = sampler.sample(graph, seeds).nbytes
    return lambda: sampler.sample(graph, seeds, step=next(steps)), moved_bytes


def _batch(config: Config, data: Any) -> wb.MiniBatch:
    return wb.NeighborSampler(FANOUTS, seed=config.seed).sample(data.graph, data.train_idx[: config.num_seeds])


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import interval_dots

    rows = table.assign(case=table.operation + ", width " + table.width.astype(str), half_width=float("nan"))
    return interval_dots(rows, x="case", y="share", group="device", title="Share of the bandwidth of a copy")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    about: dict[str, Any] = {"value": "share", "by": ["width"], "form": ".0%", "timed": True}
    found = []
    for name, least in LEAST.items():
        rows: Any = table[table.operation == name]
        if len(rows):
            statement = f"{name} reaches {least:.0%} of the bandwidth of a copy"
            found.append(claims.within(name, statement, rows, least=least, **about))
    return found


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    """Median bandwidth by operation, in GB per second."""
    return table.groupby("operation", sort=False)[["gb_per_second", "copy_gb_per_second", "share"]].median()
