"""Cooperative Minibatching, Figure 6: the other two combinations of work and task. A view of Figure 3."""

from typing import Any

import pandas as pd

from experiments.cooperative.fig3 import draw_panels, title
from experiments.cooperative.work_curves import CASE, concave, never_rises
from workbench.experiment.finding import Finding

PANELS = ["node_inputs", "edge_inputs_per_seed"]


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with the quantity of each panel: input nodes for node prediction, input nodes per seed for edges."""
    node, edge = table.task == "node", table.task == "edge"
    return table.assign(
        node_inputs=table.num_inputs.where(node), edge_inputs_per_seed=(table.num_inputs / table.num_seeds).where(edge)
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    return draw_panels(shown(table), PANELS, title(table, reported))


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = shown(table)
    return [
        concave(
            "work-is-concave",
            "node prediction: the input nodes are a concave function of the batch size (theorem 3.2)",
            rows.query("task == 'node'"),
            "node_inputs",
        ),
        never_rises(
            "work-per-seed-falls",
            "edge prediction: the input nodes per seed do not rise with the batch size",
            rows.query("task == 'edge'"),
            "edge_inputs_per_seed",
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """How many times as many nodes several batches of a size read as one batch of the next size: what cooperation can
    save."""
    rows = table.groupby([*CASE, "batch_size"], sort=False).num_inputs.mean().reset_index()
    rows[["next_size", "next_inputs"]] = rows.groupby(CASE, sort=False)[["batch_size", "num_inputs"]].shift(-1)
    pairs = rows.dropna()
    ratio = pairs.num_inputs * pairs.next_size / pairs.batch_size / pairs.next_inputs
    labelled = pairs.assign(ratio=ratio, sizes=pairs.batch_size.map("{:,.0f}".format))
    return labelled.pivot_table("ratio", CASE, "sizes", sort=False).reset_index()
