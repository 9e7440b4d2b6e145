"""Rethinking Graph Data Placement, locality-aware sampling: rows moved and error of aggregates over the factor."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from pydantic import Field, NonNegativeInt, PositiveInt

import workbench as wb
from experiments.data_placement.local_samplers import (
    LOCAL,
    PLAIN,
    SamplerName,
    algorithm_1,
    device_samplers,
    layer_nodes,
    read_batches,
)
from experiments.data_placement.movement import (
    TOPOLOGIES,
    MovementConfig,
    TopologyName,
    moved_columns,
    place_all,
    told_speeds,
)
from workbench.core.randomness import Purpose, permutation, stream
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

CASE = ["dataset", "topology", "hops"]
REFERENCES: tuple[SamplerName, ...] = ("NS", "LABOR-0", "LADIES")
RANDOM = "NS, random placement"
PROJECTIONS = 8
MOST_SIGMAS = 4.0
"""Deviation of the mean error that an unbiased sampler exceeds with a probability of 6e-5."""


class Config(MovementConfig):
    """Batches of several GPUs by every sampler and factor, on the placement of Algorithm 1.

    Args:
        topology: which GPUs have fast links.
        factors: f; 1: plain sampling.
        hops: j: nodes within j hops of the buffer are boosted.
        steps: batches per GPU and run.
        nodes: training nodes whose aggregates of features are estimated, in one layer of the last fanout.
        draws: estimates per run.
        runs: number of seeds.
    """

    topology: TopologyName
    factors: tuple[float, ...] = Field(min_length=2)
    hops: NonNegativeInt = 0
    steps: PositiveInt
    nodes: PositiveInt
    draws: int = Field(gt=2 * PROJECTIONS)
    runs: int = Field(ge=2)


def run(config: Config) -> Iterator[dict[str, Any]]:
    data, topology = config.dataset.load(), TOPOLOGIES[config.topology]
    placement = algorithm_1(config, data, topology)
    spread = place_all(config, data, topology, ["random"])["random"].placement
    sizes = layer_nodes(data.graph, data.train_idx[: config.batch_size], config.fanouts)
    for number in range(config.runs):
        given: dict[str, Any] = {"fanouts": config.fanouts, "layer_nodes": sizes, "seed": config.seed + number}
        cases: list[Any] = [(name, 1.0) for name in REFERENCES]
        cases += [(name, factor) for name in LOCAL for factor in config.factors]
        plain, _ = _errors(config, data, placement, "NS", 1.0, number)
        for name, factor in cases:
            samplers = device_samplers(name, data.graph, placement, factor=factor, hops=config.hops, **given)
            epoch = read_batches(config, data, samplers, steps=config.steps, seed=config.seed + number)
            error, sigma = _errors(config, data, placement, name, factor, number)
            moved = moved_columns(config, data, placement, epoch)
            yield {
                "method": name,
                "factor": factor,
                "run": number,
                **moved,
                **_ratios(error, plain),
                "bias_sigma": sigma,
            }
            if name == "NS":
                yield {"method": RANDOM, "factor": 1.0, "run": number, **moved_columns(config, data, spread, epoch)}


def _errors(
    config: Config, data: Any, placement: wb.placement.Placement, name: SamplerName, factor: float, number: int
) -> tuple[wb.sampling.AggregateError, float]:
    """Errors of the first device's estimates in one layer, and how far their mean is from 0, in standard deviations."""
    graph, seed = data.graph, config.seed + number
    order = permutation(stream(seed, Purpose.SHUFFLE), len(data.train_idx))
    nodes, fanouts = data.train_idx[order[: config.nodes]], config.fanouts[-1:]
    given: dict[str, Any] = {"fanouts": fanouts, "layer_nodes": layer_nodes(graph, nodes, fanouts), "seed": seed}
    sampler = device_samplers(name, graph, placement, factor=factor, hops=config.hops, **given)[0]
    told: dict[str, Any] = {"sampler": sampler, "draws": config.draws}
    x = data.x.to(torch.float32)
    return wb.sampling.aggregate_error(graph, nodes, x, **told), wb.sampling.bias_sigma(
        graph, nodes, x, **told, projections=PROJECTIONS
    )


def _ratios(error: wb.sampling.AggregateError, plain: wb.sampling.AggregateError) -> dict[str, float]:
    """Variance and squared bias over the variance of NS with the same fanout."""
    return {
        "variance_ratio": error.total_variance / plain.total_variance,
        "bias_ratio": error.squared_bias / plain.total_variance,
    }


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows per batch and device by link, and the modelled speedup of loading over random buffers without peers."""
    named = table.assign(dataset=table.dataset.str.removeprefix("synthetic-"))
    random: Any = named[named.method == RANDOM].groupby(CASE).alone_seconds.median(skipna=False).rename("base_seconds")
    rows = named.join(random, on=CASE)
    return rows.assign(speedup=rows.base_seconds / rows.loading_seconds)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows: Any = shown(table)
    share = _fallen(rows[rows.method == "LAS"])
    most = rows[rows.method.isin(LOCAL)].factor.max()
    return Title("Unbiased sampling at f = {most:g} reads {share:.0%} of the rows of the host", most=most, share=share)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    rows = shown(table)
    local: Any = rows[rows.method.isin(LOCAL)]
    return lines(
        local.assign(panel=panels(local)),
        x="factor",
        log_x=True,
        y=["host_rows", "peer_rows", "speedup"],
        group="method",
        facet="panel",
        title=title(table, reported).text,
        subtitle=f"speedup of loading over random buffers without peers: {told_speeds(table)}",
    )


def panels(rows: Any) -> Any:
    """A short name of every row's case; j is told where it varies."""
    names = rows.dataset + " · " + rows.topology
    return names + ", j = " + rows.hops.astype(str) if rows.hops.nunique() > 1 else names


def _fallen(rows: Any) -> Any:
    """Rows of the host at the largest factor over those at f = 1."""
    wide = rows.pivot_table("host_rows", CASE, "factor")
    return wide[wide.columns.max()] / wide[wide.columns.min()]


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = shown(table)
    local: Any = rows[rows.method.isin(LOCAL)]
    most = local.factor.max()
    at_most = local[local.factor == most]
    by = [*CASE, "method"]
    return [
        claims.monotone(
            "movement-falls",
            "rows of the host fall with f, for every sampler that prefers buffered rows",
            local,
            value="host_rows",
            along="factor",
            by=by,
            falling=True,
        ),
        _faster(rows, most),
        claims.within(
            "speedup",
            f"with placement and sampling (f = {most:g}) loading is 1.2 to 4.4 times as fast as from random buffers "
            "without peers",
            at_most.groupby(by).speedup.median(skipna=False).reset_index(),
            value="speedup",
            by=by,
            least=1.2,
            most=4.4,
            form=".2f",
            sized=True,
        ),
        claims.within(
            "unbiased",
            f"the corrected samplers are unbiased: the mean errors of {int(table.draws.iloc[0])} draws are within "
            f"{MOST_SIGMAS:g} standard deviations of 0 (Hotelling's T² of {PROJECTIONS} projections)",
            local[local.method != "LAS, published"],
            value="bias_sigma",
            by=[*by, "factor", "run"],
            most=MOST_SIGMAS,
            form=".2f",
        ),
        claims.within(
            "published-biased",
            f"the published form is biased at f = {most:g}: they are further from 0 in the median run",
            at_most[at_most.method == "LAS, published"].groupby(by).bias_sigma.median(skipna=False).reset_index(),
            value="bias_sigma",
            by=by,
            least=MOST_SIGMAS,
            form=".1f",
        ),
    ]


def _faster(rows: pd.DataFrame, most: float) -> Finding:
    """Each local sampler beside its plain form, on the same placement."""
    parts = []
    for name, plain in PLAIN.items():
        kept = rows[(rows.method == plain) | ((rows.method == name) & (rows.factor == most))]
        parts.append(kept.assign(sampler=name, kind=kept.method.eq(name).map({True: "local", False: "plain"})))
    return claims.least(
        "loads-faster",
        f"at f = {most:g} loading is faster than with the plain form of each sampler, on the same placement",
        pd.concat(parts).rename(columns={"loading_seconds": "modelled"}),
        value="modelled",
        among="kind",
        winner="local",
        rivals=["plain"],
        by=[*CASE, "sampler"],
    )


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Means over runs: share of the input rows by link, speedup over random buffers without peers, errors over NS's."""
    rows = shown(table)
    read = rows.device_rows + rows.peer_rows + rows.host_rows
    for link in ("device", "peer", "host"):
        rows[f"{link} rows"] = rows[f"{link}_rows"] / read
    values = ["device rows", "peer rows", "host rows", "speedup", "variance_ratio", "bias_ratio", "bias_sigma"]
    means: Any = rows.groupby([*CASE, "method", "factor"], sort=False)[values].mean()
    return means.reset_index().rename(
        columns={
            "variance_ratio": "variance ÷ NS",
            "bias_ratio": "squared bias ÷ variance of NS",
            "bias_sigma": "mean error in σ",
        }
    )
