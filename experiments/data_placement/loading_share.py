"""Rethinking Graph Data Placement, motivation: share of loading features in an epoch with METIS and PaGraph buffers."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pydantic import PositiveFloat, PositiveInt

from experiments.data_placement.movement import (
    OWN,
    TOPOLOGIES,
    MovementConfig,
    TopologyName,
    moved_columns,
    place_all,
    sample_epoch,
    told_speeds,
)
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.nn.model import LayerSize, model_work

METHODS = (f"METIS{OWN}", f"PaGraph{OWN}", "algorithm-1")
ALONE, PEERS = "own buffer, host", "peers too"
CASE = ["dataset", "topology"]


class Config(MovementConfig):
    """One machine that trains a GCN; compute is modelled as its bytes and float32 operations.

    Args:
        topology: which GPUs have fast links.
        hidden_dim: width of hidden layers.
        flops: float32 operations per second at peak.
    """

    topology: TopologyName
    hidden_dim: PositiveInt
    flops: PositiveFloat


def run(config: Config) -> Iterator[dict[str, Any]]:
    data, topology = config.dataset.load(), TOPOLOGIES[config.topology]
    for method, placed in place_all(config, data, topology, METHODS).items():
        epoch = sample_epoch(config, data, topology.num_devices, placed.seeds)
        columns = moved_columns(config, data, placed.placement, epoch)
        dims = [data.num_features, *[config.hidden_dim] * (len(config.fanouts) - 1), data.num_classes]
        work = model_work("gcn", [LayerSize(*sizes) for sizes in epoch.layers], dims)
        step = work.nbytes / config.speeds().gamma + work.flops / config.flops
        compute = columns["batches"] * step
        for reads, name in {ALONE: "alone_seconds", PEERS: "loading_seconds"}.items():
            share = columns[name] / (columns[name] + compute)
            yield {"method": method, "reads": reads, **columns, "compute_seconds": compute, "loading_share": share}


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows: Any = table[(table.method != "algorithm-1") & (table.reads == ALONE)].set_index([*CASE, "method"])
    text = "Modelled: loading is {share:.0%} of an epoch, if no device reads a peer"
    return Title(text, share=rows.loading_share)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from experiments.data_placement.method_dots import method_dots

    rows = table.assign(case=table.dataset.str.removeprefix("synthetic-") + " · " + table.topology)
    return method_dots(
        rows,
        x="reads",
        y={"loading_share": "loading ÷ (loading + compute)"},
        panel="case",
        title=title(table, reported).text,
        subtitle=f"rows counted, times {told_speeds(table)}; compute at peak {table.flops.iloc[0] / 1e12:.3g} TFLOP/s",
        line=0.5,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    partitioned: Any = table[(table.method != "algorithm-1") & (table.reads == ALONE)]
    ours: Any = table[(table.method == "algorithm-1") & (table.reads == PEERS)]
    as_published = pd.concat([partitioned, ours])
    return [
        claims.within(
            "bottleneck",
            "with METIS and PaGraph buffers, and no reads of peers, loading is more than half of an epoch",
            partitioned,
            value="loading_share",
            by=[*CASE, "method"],
            least=0.5,
            form=".1%",
        ),
        claims.least(
            "share-falls",
            "with Algorithm 1 and reads of peers its share is less",
            as_published,
            value="loading_share",
            among="method",
            winner="algorithm-1",
            rivals=METHODS[:2],
            by=CASE,
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Shares of rows by link, and of loading in an epoch; the slides show theirs in pictures alone."""
    columns: list[Any] = [table[f"{link}_rows"] for link in ("device", "peer", "host")]
    read = sum(columns)
    shares = {f"{link} rows": values / read for link, values in zip(("own", "peer", "host"), columns, strict=True)}
    keys = {column: table[column] for column in (*CASE, "method", "reads")}
    return pd.DataFrame(keys | shares | {"loading share": table.loading_share})
