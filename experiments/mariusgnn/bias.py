"""MariusGNN, edge permutation bias by order: BETA, COMET and ours, over partitions and over nodes."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pydantic import PositiveInt

import workbench as wb
from experiments.mariusgnn.order_point import BALANCED, BETA, COMET, OrderConfig
from workbench.core.randomness import permutation
from workbench.experiment import claims
from workbench.experiment.config import DataPointConfig
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

CASE = ["dataset", "group_partitions", "num_logical"]
_MOST = {7: 0.40, 8: 0.35}
HALF, ENOUGH = 0.5, 7
"""Claimed of the balanced order: at most this share of COMET's bias over partitions, from so many groups on."""


class Config(OrderConfig, DataPointConfig):
    """Epochs of one order over the edges of a knowledge graph, whose nodes are in random partitions of equal size.

    Args:
        hub_edges: edges of a node from which on it counts for the bias over hubs.
    """

    hub_edges: PositiveInt = 100


def run(config: Config) -> Iterator[dict[str, Any]]:
    graph = config.dataset.load().graph()
    for epoch in range(config.epochs):
        order = config.order(epoch)
        partition = permutation(config.seed + epoch, graph.num_nodes) % order.num_partitions
        yield {
            "epoch": epoch,
            "num_partitions": order.num_partitions,
            "capacity": order.capacity,
            "num_states": order.num_states,
            "num_loads": order.num_loads,
            "extra_loads": order.num_loads - config.least_loads,
            "partition_bias": wb.outofcore.partition_bias(order),
            "reshuffled_bias": None
            if config.method == BALANCED
            else wb.outofcore.partition_bias(config.order(epoch, reshuffle=True)),
            "node_bias": wb.outofcore.node_bias(order, graph, partition),
            "hub_bias": wb.outofcore.node_bias(order, graph, partition, min_edges=config.hub_edges),
        }


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    share: Any = of_comet(table).set_index(CASE).share
    return Title("A balanced order has {share:.2f} of COMET's edge permutation bias over partitions", share=share)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    rows = table.assign(p=[f"p = {size} l" if size > 1 else "p = l" for size in table.group_partitions])
    figure = lines(
        rows,
        x="num_logical",
        y=["partition_bias", "hub_bias"],
        group="method",
        facet=["dataset", "p"],
        title=title(table, reported).text,
    )
    return figure.update_yaxes(range=[0, 1.04])


def of_comet(table: pd.DataFrame) -> pd.DataFrame:
    """The balanced order's bias over partitions as a share of COMET's, one row per case."""
    found = claims.method_ratios(table, value="partition_bias", among="method", between=(BALANCED, COMET), by=CASE)
    return found.reset_index(name="share")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    table = table.round({"partition_bias": 12})  # sums in another order; with p = l COMET is BETA, relabelled
    least: dict[str, Any] = {"among": "method", "by": [*CASE, "epoch"]}
    ours: Any = table[table.method == BALANCED]
    grouped: Any = table[table.method != BETA]
    found = [
        claims.least(
            f"balanced-least-{over}",
            f"over {told} no order has less bias than the balanced one",
            table,
            value=value,
            winner=BALANCED,
            rivals=[COMET, BETA],
            margin=0.0,
            among="method",
            by=by,
        )
        for over, told, value, by in (
            ("partitions", "partitions", "partition_bias", [*CASE, "epoch"]),
            ("hubs", "nodes with many edges, medians over random partitions,", "hub_bias", CASE),
        )
    ]
    for groups, most in _MOST.items():
        rows = ours[ours.num_logical == groups]
        if len(rows):
            told = f"with l = {groups} the bias of the balanced order is at most {most} over partitions"
            found.append(
                claims.within(f"bias-{groups}", told, rows, value="partition_bias", by=[*CASE, "epoch"], most=most)
            )
    shares = of_comet(table)
    enough: Any = shares[shares.num_logical >= ENOUGH]
    half = f"from {ENOUGH} groups on, the balanced order has at most half of COMET's bias over partitions"
    found.append(claims.within("half-of-comet", half, enough, value="share", by=CASE, most=HALF))
    if "reshuffled_bias" in table:
        cycles: Any = grouped[grouped.method == COMET].groupby(CASE)[["reshuffled_bias", "partition_bias"]]
        means: Any = cycles.mean(skipna=False).reset_index()
        apart = means.assign(apart=means.reshuffled_bias / means.partition_bias - 1)
        same = "with groups reshuffled before every cycle, as in the artifact, COMET's mean bias is the same within 5 %"
        found.append(claims.within("reshuffled-as-comet", same, apart, value="apart", by=CASE, least=-0.05, most=0.05))
    several: Any = table[table.group_partitions > 1]
    comet = "COMET's bias over partitions is below BETA's, if groups have several partitions; else they are one order"
    minimal = "COMET and the balanced order load the fewest partitions of all orders of pairs of groups"
    by = [*CASE, "method", "epoch"]
    return [
        *found,
        claims.within("minimal-loads", minimal, grouped, value="extra_loads", by=by, least=0, most=0),
        claims.least("comet-below-beta", comet, several, value="partition_bias", winner=COMET, rivals=[BETA], **least),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Bias by order and number of groups, medians over the epochs; reported values first."""
    columns = [
        "dataset",
        "method",
        "num_logical",
        "group_partitions",
        "partition_bias",
        "hub_bias",
        "node_bias",
        "num_loads",
    ]
    here: Any = table.groupby(columns[:4])[columns[4:]].median().reset_index()
    paper: Any = reported.assign(dataset="any (reported)").reindex(columns=columns)
    both: Any = pd.concat([paper.dropna(axis=1, how="all"), here])
    return both[columns]
