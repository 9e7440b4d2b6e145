"""Betty, Figure 12: peak memory and epoch time over the number of micro-batches. Rows are those of Figure 11."""

import pandas as pd
from plotly.graph_objects import Figure

from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.plots.lines import panels

SPREAD = {"epoch_seconds": ("epoch_seconds_min", "epoch_seconds_max")}
BALANCE = (4, 8)


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of this figure, cut by REG; one panel a data set and model."""
    rows = table[(table.method == "reg") & (table.fanouts == "[10, 25]")]
    return rows.assign(panel=rows.dataset + ", " + rows.model)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Figure:
    return panels(
        shown(table),
        x="num_parts",
        log_x=True,
        y=["peak_bytes", "epoch_seconds"],
        error=SPREAD,
        group="method",
        facet=["dataset", "model"],
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
            by=["panel"],
            falling=True,
        ),
        knee(rows),
        claims.monotone(
            "time-rises",
            "epoch time rises with more micro-batches",
            rows,
            value="epoch_seconds",
            along="num_parts",
            by=["panel"],
            timed=True,
        ),
    ]


def knee(rows: pd.DataFrame) -> Finding:
    """Where the curve of memory over K is farthest from the line between its ends ("Kneedle", Satopää et al. 2011); the
    paper's own numbers of Table 6 have theirs at 8."""
    peaks = rows.pivot_table("peak_bytes", "panel", "num_parts")
    first, last = min(peaks), max(peaks)
    counts = pd.Series(peaks.columns, peaks.columns)
    saved = peaks.rsub(peaks[first], axis=0).div(peaks[first] - peaks[last], axis=0)
    knees = (saved - (counts - first) / (last - first)).idxmax(axis=1)
    evidence = "; ".join(
        f"{panel}: K = {k}, {saved.loc[panel, k]:.0%} of what {last} save" for panel, k in knees.items()
    )
    low, high = BALANCE
    statement = f"the curve of memory over K has its knee at {low} to {high}"
    return Finding("knee-at-4-to-8", statement, bool(knees.between(low, high).all()), evidence)


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Peak memory and epoch time relative to the whole batch; the paper's are of Table 6, which is this sweep on
    ogbn-products."""
    here = shown(table).pivot_table(["peak_bytes", "epoch_seconds"], "num_parts", "panel")
    columns = {"K": here.index}
    paper = reported.set_index("num_parts").reindex(here.index)
    columns |= {"memory, paper": paper.peak_gb / reported.peak_gb.iloc[0]}
    columns |= {
        f"memory, {panel}": here["peak_bytes"][panel] / here["peak_bytes"][panel][1] for panel in here["peak_bytes"]
    }
    columns |= {"time, paper": paper.epoch_seconds / reported.epoch_seconds.iloc[0]}
    columns |= {
        f"time, {panel}": here["epoch_seconds"][panel] / here["epoch_seconds"][panel][1]
        for panel in here["epoch_seconds"]
    }
    return pd.DataFrame(columns).reset_index(drop=True)
