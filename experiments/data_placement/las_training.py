"""Rethinking Graph Data Placement, evaluation: training loss and accuracy with locality-aware sampling."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pydantic import Field, NonNegativeInt

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
from experiments.data_placement.local_samplers import (
    SamplerName,
    algorithm_1,
    device_samplers,
    layer_nodes,
)
from experiments.data_placement.movement import TOPOLOGIES, MovementConfig, TopologyName
from workbench.experiment.claims import once_trained
from workbench.experiment.finding import Finding
from workbench.experiment.interval import decided_within, mean_intervals
from workbench.experiment.title import Title

RUN = ["dataset", "topology", "seed"]
LATE = 0.25
"""Share of the steps at the end of a run over which the loss is averaged."""


class Config(TrainingConfig):
    """Training on several GPUs, each of which samples its share of every batch by the factors of its own buffer.

    Args:
        topology: which GPUs have fast links; their buffers are placed by Algorithm 1.
        method: sampler.
        buffer_share: rows that each device has room for, as a share of all rows.
        factor: f.
        hops: j: nodes within j hops of the buffer are boosted.
    """

    topology: TopologyName
    method: SamplerName
    buffer_share: float = Field(gt=0, le=1)
    factor: float = Field(ge=1)
    hops: NonNegativeInt = 0


def run(config: Config) -> Iterator[dict[str, Any]]:
    data, topology = config.dataset.load(), TOPOLOGIES[config.topology]
    share = config.batch_size // topology.num_devices
    known = {name: getattr(config, name) for name in ("dataset", "device", "seed", "fanouts", "buffer_share")}
    placement = algorithm_1(MovementConfig(**known, batch_size=share), data, topology)
    samplers = device_samplers(
        config.method,
        data.graph,
        placement,
        factor=config.factor,
        hops=config.hops,
        fanouts=config.fanouts,
        layer_nodes=layer_nodes(data.graph, data.train_idx[:share], config.fanouts),
        seed=config.seed,
    )
    yield from training_rows(config, samplers)


def late_losses(table: pd.DataFrame) -> pd.DataFrame:
    """Mean loss at the end of every run."""
    late: Any = table[table.step > (1 - LATE) * table.groupby("dataset").step.transform("max")]
    return late.groupby([*RUN, "method"], sort=False).loss.mean(skipna=False).reset_index()


def early_losses(table: pd.DataFrame) -> pd.DataFrame:
    """Mean loss of the first half of every run, which is lower the faster it falls."""
    early: Any = table[table.step <= 0.5 * table.groupby("dataset").step.transform("max")]
    return early.groupby([*RUN, "method"], sort=False).loss.mean(skipna=False).reset_index()


def differences(found: pd.DataFrame, value: str, base: SamplerName = "NS") -> Any:
    """Differences from a sampler that knows of no buffer, with the same seed."""
    return paired_differences(found, value=value, by=RUN, along="method", base=base)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    apart = differences(best_f1(table, [*RUN, "method"]), "val_f1")
    las: Any = 100 * apart[apart.method == "LAS"].groupby(["dataset", "topology"]).difference.mean()
    return Title("Unbiased LAS (f = {most:g}): F1 {las:+.2f} points from NS", most=table.factor.max(), las=las)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    values = ["loss", "val_f1"]
    curves = mean_curves(table, values, ["dataset", "topology", "method"])
    curves = curves.assign(dataset=curves.dataset + " · " + curves.topology)
    return draw_curves(curves, values, "method", title(table, reported).text)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    f1 = differences(best_f1(table, [*RUN, "method"]), "val_f1")
    found = [
        *_of_losses(table, "LAS, published", "published"),
        *_of_losses(table, "LAS", "unbiased"),
        *(_of_losses(table, "LADIES + LAS", "ladies", "LADIES") if "LADIES" in set(table.method) else []),
        decided_within(
            "accuracy",
            f"F1 with all neighbours is that after training with NS, within {100 * MARGIN:g} points, for every sampler",
            f1,
            value="difference",
            by=["dataset", "topology", "method"],
            least=-MARGIN,
            most=MARGIN,
            form="+.2%",
        ),
    ]
    return once_trained(found, learnt(table, ["dataset", "topology", "method"]))


def _of_losses(table: pd.DataFrame, method: SamplerName, short: str, base: SamplerName = "NS") -> list[Finding]:
    """Loss with a local sampler beside that of one that knows of no buffer."""
    early, late = (differences(found(table), "loss", base) for found in (early_losses, late_losses))
    how: Any = {"value": "difference", "by": ["dataset", "topology"], "looks": (5, 30), "form": "+.3f"}
    return [
        decided_within(
            f"{short}-no-slower",
            f"{method}: over the first half of the training the loss is no higher than with {base}",
            early[early.method == method],
            most=0.0,
            **how,
        ),
        decided_within(
            f"{short}-lower-at-the-end",
            f"{method}: over the last quarter the loss is lower than with {base}",
            late[late.method == method],
            most=0.0,
            **how,
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Loss over the last quarter, and the best F1 with all neighbours, with 95 % intervals; F1 as a difference from NS.

    The slides show the loss as a picture alone.
    """
    keys = ["dataset", "topology", "method"]
    loss = mean_intervals(late_losses(table), value="loss", by=keys).set_index(keys)
    best = best_f1(table, [*RUN, "method"])
    f1 = mean_intervals(best, value="val_f1", by=keys).set_index(keys)
    apart = mean_intervals(differences(best, "val_f1"), value="difference", by=keys).set_index(keys)
    told = {
        "loss at the end": _told(loss, "loss", 1, "{:.3f}"),
        "F1 in %": _told(f1, "val_f1", 100, "{:.2f}"),
        "points from NS": _told(apart, "difference", 100, "{:+.2f}"),
    }
    return pd.DataFrame(told, index=f1.index).fillna("").reset_index()


def _told(found: Any, value: str, times: float, form: str) -> Any:
    return (times * found[value]).map(form.format) + " ± " + (times * found.half_width).map("{:.2g}".format)
