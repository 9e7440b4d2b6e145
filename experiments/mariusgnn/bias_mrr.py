"""MariusGNN: edge permutation bias of orders, and the MRR that they reach; rows of link_prediction."""

from typing import Any

import pandas as pd

from experiments.mariusgnn.link_prediction import CASE, last_epochs
from experiments.mariusgnn.link_systems import BALANCED, BETA, COMET
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

BY = ["dataset", "model"]
ORDERS = (COMET, BETA, BALANCED)


def means(table: pd.DataFrame) -> pd.DataFrame:
    """Mean bias and MRR of every order, over the runs, after the last epoch."""
    rows: Any = last_epochs(table).query("system in @ORDERS")
    found: Any = rows.groupby([*CASE, "model", "system"], sort=False)[["bias", "mrr"]].mean(skipna=False)
    return found.reset_index()


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    bias: Any = means(table).set_index([*BY, "system"]).bias
    return Title("Orders with a bias from {bias.least:.2f} to {bias.most:.2f}, and the MRR they reach", bias=bias)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    found = means(table)
    return lines(
        found.rename(columns={"bias": "edge permutation bias B", "mrr": "filtered MRR"}),
        x="edge permutation bias B",
        y="filtered MRR",
        group="system",
        facet=BY,
        title=title(table, reported).text,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    found = means(table)
    places = found.assign(
        place=found.groupby(BY).bias.rank(),  # biases differ slightly between cases
        mrr=found.mrr.where(found.bias.notna()),  # an order without a place is lost
    )
    options = {"value": "mrr", "along": "place", "named": "system", "by": BY}
    return [claims.monotone("falls", "the lower an order's bias, the higher the MRR", places, **options, falling=True)]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Bias and MRR by order."""
    return means(table).sort_values(by=[*BY, "bias"]).filter([*BY, "system", "bias", "mrr"])
