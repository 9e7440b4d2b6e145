"""Betty, Figure 14: epoch time, data movement included, over the number of micro-batches. A view of Figure 11."""

from typing import Any

import pandas as pd

from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

SPREAD = {"epoch_seconds": ("epoch_seconds_min", "epoch_seconds_max")}


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of two-layer GraphSAGE with the mean aggregator, cut by REG.

    Data movement is the gathering of features and, on a GPU, the copy of features and blocks to the device.
    """
    rows = table.query("method == 'reg' and model == 'sage-mean' and fanouts == '[10, 25]'")
    return rows.assign(data_movement_seconds=rows.fetch_seconds + rows.transfer_seconds)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    seconds = shown(table).pivot_table("epoch_seconds", "dataset", "num_parts", aggfunc="median")
    most = max(seconds.dropna(axis="columns"), default=max(seconds))  # that all data sets have
    times: Any = (seconds[most] / seconds[1]).dropna() if 1 in seconds else pd.Series(dtype=float)
    return Title(
        "An epoch of {most} micro-batches takes {times:.1f} times that of the whole batch", most=most, times=times
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    return lines(
        shown(table),
        x="num_parts",
        log_x=True,
        y=["epoch_seconds", "data_movement_seconds"],
        spread=SPREAD,
        group="method",
        facet="dataset",
        title=title(table, reported).text,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    def rises(name: str, statement: str, value: str, *, timed: bool) -> Finding:
        return claims.monotone(
            name, statement, shown(table), value=value, along="num_parts", by=["dataset"], timed=timed
        )

    return [
        rises("time-rises", "an epoch takes longer with more micro-batches", "epoch_seconds", timed=True),
        rises("data-time-rises", "so does its data movement alone", "data_movement_seconds", timed=True),
        rises("inputs-grow", "more input nodes are loaded with more micro-batches", "total_inputs", timed=False),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Epoch time and input nodes relative to the whole batch; the paper's numbers are from Table 6, this sweep on
    ogbn-products, without data movement."""
    paper = reported.assign(dataset="ogbn-products (paper, without movement)")
    names = {"epoch_seconds": "time", "total_inputs": "inputs"}
    wide = pd.concat([paper, shown(table)]).pivot_table(list(names), "num_parts", "dataset", aggfunc="median")
    columns = {f"{names[value]}, {where}": wide[value][where] / wide[value][where][1] for value, where in wide}
    return pd.DataFrame(columns).rename_axis("K").reset_index()
