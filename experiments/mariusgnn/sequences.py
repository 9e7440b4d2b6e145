"""MariusGNN, Figures 4 and 5: the sequence of partitions in the buffer, BETA's and COMET's, and a balanced one."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

import workbench as wb
from experiments.mariusgnn.order_point import BETA, COMET, OrderConfig
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.outofcore.bucket_order import num_beta_swaps


class Config(OrderConfig):
    """The first epoch of one order."""


def run(config: Config) -> Iterator[dict[str, Any]]:
    order = config.order(0)
    for state in range(order.num_states):
        yield {
            "state": state,
            "num_partitions": order.num_partitions,
            "capacity": order.capacity,
            "holds": " ".join(map(str, order.states[state].tolist())),
            "loads": len(order.loaded(state)),
            "num_buckets": len(order.buckets(state)),
        }


def _orders(table: pd.DataFrame) -> dict[str, wb.outofcore.BucketOrder]:
    """The orders that the rows are of."""
    given: Any = table.drop_duplicates("method")[[*OrderConfig.model_fields]].astype(object)
    return {row["method"]: OrderConfig(**row).order(0) for row in given.to_dict("records")}


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    size = int(table.num_partitions.iloc[0]) // int(table.num_logical.iloc[0])
    return Title("BETA swaps one partition at a time, COMET a random group of {size}", size=size)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.heat_maps import draw_sequences

    orders = _orders(table)
    biases = {name: wb.outofcore.partition_bias(order) for name, order in orders.items()}
    panels = [(f"{name}: {order.num_loads} loads, B = {biases[name]:.2f}", order) for name, order in orders.items()]
    p, c = (int(table[column].iloc[0]) for column in ("num_partitions", "capacity"))
    groups = int(table.num_logical.iloc[0])
    return draw_sequences(
        panels,
        title=title(table, reported).text,
        subtitle=f"{p} partitions, {c} in the buffer, {groups} logical groups; a row per state of the buffer",
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    counts: Any = table.groupby("method").agg(
        loads=("loads", "sum"),
        buckets=("num_buckets", "sum"),
        p=("num_partitions", "first"),
        c=("capacity", "first"),
        groups=("num_logical", "first"),
        mean=("num_buckets", "mean"),
        largest=("num_buckets", "max"),
    )
    cases = counts.reset_index().assign(
        once=lambda rows: rows.buckets / rows.p**2,
        swaps=lambda rows: [(n - c) / num_beta_swaps(p, c) for n, p, c in zip(rows.loads, rows.p, rows.c, strict=True)],
        rows_read=lambda rows: rows.loads / ((rows.groups * (rows.groups - 1) / 2 + 1) * rows.p / rows.groups),
        unevenness=lambda rows: rows.largest / rows["mean"],
        case="epoch",
    )
    beta, grouped = cases[cases.method == BETA], cases[cases.method != BETA]
    exact: dict[str, Any] = {"by": ["method"], "least": 1, "most": 1}
    even: dict[str, Any] = {"value": "unevenness", "among": "method", "winner": COMET, "rivals": [BETA], "by": ["case"]}
    return [
        claims.within("every-bucket-once", "every bucket is trained once in an epoch", cases, value="once", **exact),
        claims.within("beta-swaps", "BETA swaps as often as its closed form says", beta, value="swaps", **exact),
        claims.within(
            "group-loads", "with two groups in the buffer, l (l − 1) / 2 + 1 groups are loaded", grouped,
            value="rows_read", **exact,
        ),
        claims.least("even-states", "COMET spreads the buckets more evenly over the states than BETA", cases, **even),
    ]  # fmt: skip


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Swaps, partitions loaded, and buckets per state; the paper's first."""
    orders = _orders(table)
    rows = [
        {
            "order": name,
            "p": order.num_partitions,
            "c": order.capacity,
            "states": order.num_states,
            "swaps": order.num_swaps,
            "features read": f"{order.num_loads / order.num_partitions:.2f} times",
            "bias": f"{wb.outofcore.partition_bias(order):.2f}",
        }
        for name, order in orders.items()
    ]
    return pd.concat([reported.drop(columns="source").assign(order=reported.order + " (paper)"), pd.DataFrame(rows)])
