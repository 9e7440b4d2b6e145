"""Betty, Figure 12: peak memory and training time over the number of micro-batches. A view of Figure 11."""

from typing import Any

import pandas as pd

from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

PHASES = ["forward_seconds", "backward_seconds", "step_seconds"]


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows cut by REG or by star, refined, with a panel per data set and model, and the time of training alone, without
    data movement."""
    rows = table[table.method.isin(["reg", "star_refined"]) & (table.fanouts == "[10, 25]")]
    return rows.assign(panel=rows.dataset + ", " + rows.model, training_seconds=rows[PHASES].sum(axis=1))


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows = shown(table).query("method == 'reg'")
    by_parts: Any = (
        rows.groupby(["panel", "num_parts"])[["peak_bytes", "training_seconds"]].median().unstack("num_parts")
    )
    memory, time = (by_parts[value] for value in ("peak_bytes", "training_seconds"))
    most = max(memory.dropna(axis="columns"), default=rows.num_parts.max())  # that all panels have
    return Title(
        "K = {most} micro-batches need {memory:.0%} of the whole batch's memory and {time:.1f} times its time",
        most=most,
        memory=(memory[most] / memory[1]).dropna(),
        time=(time[most] / time[1]).dropna(),
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    paper = reported.assign(
        dataset="ogbn-products (paper)",
        model="sage-mean",
        method="reg",
        peak_bytes=1e9 * reported.peak_gb,
        training_seconds=reported.epoch_seconds,
    )
    return lines(
        pd.concat([shown(table), paper]),
        x="num_parts",
        log_x=True,
        y=["peak_bytes", "training_seconds"],
        group="method",
        facet=["dataset", "model"],
        title=title(table, reported).text,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = shown(table)
    return [
        claims.monotone(
            "memory-falls",
            "peak memory falls with more micro-batches",
            rows,
            value="peak_bytes",
            along="num_parts",
            by=["panel", "method"],
            falling=True,
        ),
        claims.monotone(
            "time-rises",
            "training time rises with more micro-batches",
            rows,
            value="training_seconds",
            along="num_parts",
            by=["panel", "method"],
            timed=True,
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Peak memory and training time with REG relative to the whole batch; the paper's numbers are from Table 6, this
    sweep on ogbn-products."""
    here = shown(table).query("method == 'reg'").pivot_table(["peak_bytes", "training_seconds"], "num_parts", "panel")
    columns = {"K": here.index}
    paper = reported.set_index("num_parts").reindex(here.index)
    columns |= {"memory, paper": paper.peak_gb / reported.peak_gb.iloc[0]}
    columns |= {
        f"memory, {panel}": here["peak_bytes"][panel] / here["peak_bytes"][panel][1] for panel in here["peak_bytes"]
    }
    columns |= {"time, paper": paper.epoch_seconds / reported.epoch_seconds.iloc[0]}
    columns |= {
        f"time, {panel}": here["training_seconds"][panel] / here["training_seconds"][panel][1]
        for panel in here["training_seconds"]
    }
    return pd.DataFrame(columns).reset_index(drop=True)
