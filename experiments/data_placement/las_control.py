"""Rethinking Graph Data Placement, locality-aware sampling: the factor f that its controller chooses."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

import workbench as wb
from experiments.data_placement.local_samplers import (
    SamplerName,
    algorithm_1,
    device_samplers,
    layer_nodes,
    read_batches,
)
from experiments.data_placement.movement import TOPOLOGIES, MovementConfig, TopologyName, moved_columns, told_speeds
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.nn.model import LayerSize, model_work

CASE = ["dataset", "topology", "method", "row_bytes"]
CONTROL = wb.placement.LocalityControl()


class Config(MovementConfig):
    """Epochs of several GPUs; after each, the controller sets f from modelled seconds.

    Args:
        topology: which GPUs have fast links.
        method: sampler.
        epochs: their number.
        hops: j: nodes within j hops of the buffer are boosted.
        hidden_dim: width of hidden layers of a GCN.
        flops: float32 operations per second at peak.
    """

    topology: TopologyName
    method: SamplerName
    epochs: PositiveInt
    hops: NonNegativeInt = 0
    hidden_dim: PositiveInt
    flops: PositiveFloat


def run(config: Config) -> Iterator[dict[str, Any]]:
    data, topology = config.dataset.load(), TOPOLOGIES[config.topology]
    placement = algorithm_1(config, data, topology)
    sizes = layer_nodes(data.graph, data.train_idx[: config.batch_size], config.fanouts)
    control = CONTROL
    for epoch in range(1, config.epochs + 1):
        given: dict[str, Any] = {"fanouts": config.fanouts, "layer_nodes": sizes, "seed": config.seed + epoch}
        samplers = device_samplers(
            config.method, data.graph, placement, factor=control.factor, hops=config.hops, **given
        )
        read = read_batches(config, data, samplers, steps=None, seed=config.seed + epoch)
        moved = moved_columns(config, data, placement, read)
        compute = moved["batches"] * _step_seconds(config, data, read.layers)
        after = control.next(moved["loading_seconds"], moved["loading_seconds"] + compute)
        yield {
            "epoch": epoch,
            "factor": control.factor,
            "ratio": after.ratio,
            "settled": after.settled,
            **moved,
            "compute_seconds": compute,
            "epoch_seconds": moved["loading_seconds"] + compute,
        }
        control = after


def _step_seconds(config: Config, data: Any, layers: list[tuple[float, float, float]]) -> float:
    dims = [data.num_features, *[config.hidden_dim] * (len(layers) - 1), data.num_classes]
    work = model_work("gcn", [LayerSize(*sizes) for sizes in layers], dims)
    return work.nbytes / config.speeds().gamma + work.flops / config.flops


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Loading and epoch time over those of the first epoch, and the share of loading since the start."""
    rows = table.assign(dataset=table.dataset.str.removeprefix("synthetic-"))
    first: Any = rows[rows.epoch == 1].set_index(CASE)[["loading_seconds", "epoch_seconds"]].add_prefix("first_")
    rows = rows.join(first, on=CASE)
    return rows.assign(
        loading=rows.loading_seconds / rows.first_loading_seconds,
        modelled=rows.epoch_seconds / rows.first_epoch_seconds,
    )


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows: Any = shown(table)
    ends = rows[rows.epoch == rows.epoch.max()].set_index(CASE)
    text = "Modelled: f ends at {factor:g}; an epoch then loads in {loading:.0%} of the first one's time"
    return Title(text, factor=ends.factor, loading=ends.loading)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    rows = shown(table)
    rows["sampler"] = rows.method + ", " + rows.row_bytes.map("{:,} B per row".format)
    names = {"factor": "f", "ratio": "loading ÷ execution since the start", "loading": "loading ÷ first epoch"}
    figure = lines(
        rows.rename(columns=names),
        x="epoch",
        y=list(names.values()),
        group="sampler",
        facet=["dataset", "topology"],
        title=title(table, reported).text,
        subtitle=f"rows counted, times {told_speeds(table)}",
    )
    return figure


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = shown(table)
    ends: Any = rows.sort_values("epoch", kind="stable").groupby(CASE, sort=False).tail(1)
    ends = ends.assign(unsettled=1.0 - ends.settled.astype(float))
    faster = ("loads-faster", "where f has grown, loading takes less time than in the first epoch")
    grown: Any = ends[ends.factor > 1]
    return [
        claims.within(
            "doubles",
            f"f starts at {CONTROL.factor:g} and doubles after every epoch with a ratio of {CONTROL.grow_at:g} and "
            f"more, up to {CONTROL.largest:g}",
            after_growth(rows),
            value="off",
            by=[*CASE, "epoch"],
            least=0.0,
            most=0.0,
        ),
        claims.within(
            "settles",
            "the controller settles before the last epoch",
            ends,
            value="unsettled",
            by=CASE,
            most=0.0,
        ),
        claims.within("bounded", "f stays from 1 to 8", rows, value="factor", by=[*CASE, "epoch"], least=1, most=8),
        claims.within(*faster, grown, value="loading", by=CASE, most=claims.LESS, form=".1%")
        if len(grown)
        else Finding(*faster, False, "f has grown in no case", decided=False),
    ]


def after_growth(rows: pd.DataFrame) -> pd.DataFrame:
    """Epochs until a case's ratio is too small for f to double: `off`, how far f is from what the rule says."""
    rows = rows.sort_values("epoch", kind="stable")
    before, ratio = (rows.groupby(CASE, sort=False)[name].shift(1) for name in ("factor", "ratio"))
    first: Any = rows.epoch == 1
    wanted = (2 * before).clip(upper=CONTROL.largest).mask(first, CONTROL.factor)
    off = (rows.factor - wanted).where(ratio.notna() | first)  # NaN after a ratio that is lost
    low = (rows.ratio < CONTROL.grow_at).astype(int)
    earlier = low.groupby([rows[name] for name in CASE], sort=False).cumsum() - low
    found: Any = rows.assign(off=off)[earlier == 0]
    return found


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """f by epoch, and loading at the end; the slides say only that f is 1, 2, 4, … up to a maximum."""
    rows = shown(table)
    factors: Any = rows.pivot_table("factor", CASE, "epoch", sort=False).rename(columns="f, epoch {}".format)
    ends: Any = rows[rows.epoch == rows.epoch.max()].set_index(CASE)[["ratio", "loading", "modelled"]]
    named = {
        "ratio": "loading ÷ execution since the start",
        "loading": "loading ÷ first epoch",
        "modelled": "epoch ÷ first epoch",
    }
    return factors.join(ends.rename(columns=named)).rename_axis(columns=None).reset_index()
