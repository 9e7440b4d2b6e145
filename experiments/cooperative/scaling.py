"""Cooperative Minibatching, section 4.3: forward/backward with 1 to 4 cooperating PEs, modelled from counted work."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pydantic import PositiveInt

import workbench as wb
from experiments.cooperative.samplers import build_sampler
from experiments.cooperative.step_costs import (
    SYSTEMS,
    PeBatches,
    StepConfig,
    counted_columns,
    price,
    relations_per_row,
    work_of,
)
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.sampling.cooperation_cost import PeCounts

CASE = ["dataset", "model", "ownership"]
SYSTEM = SYSTEMS["4 A100"]
NAMES = {"gcn": "GCN", "rgcn": "R-GCN", "gat": "GAT"}


class Config(StepConfig):
    """Several PEs of one machine.

    Args:
        num_pes: number of PEs, each with `batch_size` seeds.
    """

    num_pes: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    sampler = build_sampler(config.sampler, config.fanouts, seed=config.seed)
    steps, pes = [], []
    for pes in PeBatches(config, data, config.num_pes).sample(sampler, range(config.steps)):
        steps.append(PeCounts.of(wb.cooperative_work(pes)))
    mean = PeCounts.mean(count for step in steps for count in step).scaled(config.times)
    slowest = PeCounts.mean(max(step, key=lambda count: count.edges[-1]) for step in steps).scaled(config.times)
    relations = relations_per_row(pes)
    yield {
        **counted_columns(mean),
        "imbalance": slowest.edges[-1] / mean.edges[-1],
        "gamma": SYSTEM.machine.gamma,
        "alpha": SYSTEM.machine.alpha,
        "flops": SYSTEM.fp32_flops,
        "relations": relations,
        "hidden_bytes": 4 * config.hidden_dim,
        **_seconds(mean, "", relations, config, data),
        **_seconds(slowest, "slowest_", relations, config, data),
    }


def _seconds(counts: PeCounts, prefix: str, relations: float, config: Config, data: Any) -> dict[str, float]:
    work = work_of(counts, config, data, relations)
    cost = price(counts, work, SYSTEM.machine, config, data).forward_backward
    exact = price(counts, work, SYSTEM.with_arithmetic, config, data).forward_backward
    return {
        f"{prefix}work_bytes": work.nbytes,
        f"{prefix}work_flops": work.flops,
        f"{prefix}exchange_seconds": cost.exchange,
        f"{prefix}bandwidth_seconds": cost.total,
        f"{prefix}seconds": exact.total,
    }


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with the paper's names, and times relative to those of one PE."""
    rows = table.assign(dataset=table.dataset.str.removeprefix("synthetic-"), case=table.model.map(NAMES))
    alone: Any = rows.query("num_pes == 1").groupby(CASE)
    values = {"modelled_time": "seconds", "modelled_time_bandwidths": "bandwidth_seconds", "modelled_slowest": "slowest_seconds"}
    keys = pd.MultiIndex.from_frame(rows[CASE])
    return rows.assign(**{
        name: (rows[column].to_numpy() / alone[values["modelled_time_bandwidths"] if column == "bandwidth_seconds" else "seconds"].mean().loc[keys].to_numpy())
        for name, column in values.items()
    })
