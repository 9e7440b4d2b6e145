"""Cooperative Minibatching, sections 3.2 and A.7: nested against smoothed dependence, by the misses of an LRU cache."""

from collections.abc import Iterator
from math import ceil
from typing import Any, Literal

import pandas as pd
from pydantic import Field, PositiveInt

import workbench as wb
from experiments.cooperative.samplers import SamplerName, build_sampler
from workbench.experiment import claims
from workbench.experiment.config import DataPointConfig
from workbench.experiment.finding import Finding
from workbench.experiment.interval import mean_intervals
from workbench.experiment.title import Title

CASE = ["dataset", "sampler", "kappa"]
Way = Literal["independent", "nested", "smoothed"]
WITHIN = 0.1


class Config(DataPointConfig):
    """Training batches by one sampler, whose input rows are read through an LRU cache.

    Args:
        sampler: name in the paper.
        fanouts: neighbours per layer, input layer first.
        batch_size: training nodes per batch.
        kappa: batches per group.
        groups: groups that are counted, after one to warm up.
        capacity_share: rows of the cache as a fraction of the nodes.
        runs: number of seeds.
    """

    sampler: SamplerName
    fanouts: tuple[int, ...] = Field(min_length=1)
    batch_size: PositiveInt
    kappa: int = Field(ge=2)
    groups: PositiveInt
    capacity_share: float = Field(gt=0, le=1)
    runs: int = Field(ge=2)


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    graph, train = data.graph.to(config.device), data.train_idx.to(config.device)
    capacity, kappa = ceil(config.capacity_share * graph.num_nodes), config.kappa
    ways: dict[Way, Any] = {"independent": None, "nested": wb.Nested(kappa), "smoothed": wb.Smoothed(kappa)}
    for number in range(config.runs):
        for way, dependence in ways.items():
            seed = config.seed + number
            sampler = build_sampler(config.sampler, config.fanouts, seed=seed, dependence=dependence)
            batches = wb.batches(graph, train, sampler=sampler, batch_size=config.batch_size, drop_last=True, seed=seed)
            trace = wb.AccessTrace.of(mb.node_ids for _, mb in batches.steps((1 + config.groups) * kappa))
            found = wb.features.simulate_cache(trace, capacity, policy="lru", num_rows=graph.num_nodes, warmup=kappa)
            misses = (found.accesses - found.hits)[kappa:].double()
            yield {
                "dependence": way,
                "run": number,
                "capacity_rows": capacity,
                "num_inputs": found.num_accesses / len(misses),
                "miss_rate": found.miss_rate,
                "mean_misses": float(misses.mean()),
                "largest_misses": float(misses.max()),
            }


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with the misses of the worst batch over those of the mean batch."""
    return table.assign(worst_to_mean=table.largest_misses / table.mean_misses)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    worst: Any = shown(table).groupby([*CASE, "dependence"]).worst_to_mean.max()
    return Title(
        "The worst batch misses {nested:.2f} times the mean when nested, {smoothed:.2f} times when smoothed",
        nested=worst.xs("nested", level="dependence"),
        smoothed=worst.xs("smoothed", level="dependence"),
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import interval_dots

    rows = table.assign(case=table.dataset.str.removeprefix("synthetic-") + table.kappa.map(", κ = {}".format))
    return interval_dots(
        mean_intervals(rows, value="miss_rate", by=["case", "dependence"]),
        x="case",
        y="miss_rate",
        group="dependence",
        title=title(table, reported).text,
        subtitle="miss rate of LRU, mean and 95 % confidence interval over independent seeds",
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = shown(table)
    ratios = claims.method_ratios(
        rows, value="miss_rate", among="dependence", between=("smoothed", "nested"), by=[*CASE, "run"]
    )
    return [
        *(
            claims.least(
                f"{way}-misses-less",
                f"{way} batches miss fewer rows than independent ones",
                rows,
                value="mean_misses",
                among="dependence",
                winner=way,
                rivals=["independent"],
                by=[*CASE, "run"],
            )
            for way in ("nested", "smoothed")
        ),
        claims.within(
            "same-locality",
            f"smoothed dependence has the locality of nested: its miss rate is nested's, within {WITHIN:.0%}",
            ratios.reset_index(name="ratio"),
            value="ratio",
            by=[*CASE, "run"],
            least=1 - WITHIN,
            most=1 + WITHIN,
        ),
        claims.least(
            "no-abrupt-change",
            "smoothed batches change slowly: the batch that misses most is closer to the mean than with nested groups, "
            "whose first batch draws anew",
            rows,
            value="worst_to_mean",
            among="dependence",
            winner="smoothed",
            rivals=["nested"],
            by=[*CASE, "run"],
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Miss rate, and the worst batch's misses over the mean's, by dependence; the paper gives no numbers."""
    rows: Any = shown(table).groupby([*CASE, "dependence"], sort=False)[["miss_rate", "worst_to_mean"]].mean()
    wide: Any = rows.unstack("dependence")
    wide.columns = [f"{value.replace('_', ' ')}, {way}" for value, way in wide.columns]
    return wide.reset_index()
