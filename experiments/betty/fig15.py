"""Betty, Figure 15: input nodes of all micro-batches over epoch time. A view of Figure 11."""

from typing import Any

import pandas as pd

from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

RIVALS = ["metis", "range", "random"]
LEAST, MOST = 0.8, 1.3  # relative to the whole batch's efficiency


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of two-layer GraphSAGE with the mean aggregator, with the efficiency in nodes per second and relative to the
    whole batch's."""
    rows = table.query(f"model == 'sage-mean' and fanouts == '[10, 25]' and method in {['reg', *RIVALS]}")
    return _efficient(rows, ["dataset", "method"])


def _efficient(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    rows = rows.assign(nodes_per_second=rows.total_inputs / rows.epoch_seconds)
    whole = rows[rows.num_parts == 1].groupby(by).nodes_per_second.median().rename("whole")
    rows = rows.join(whole, on=by)
    return rows.assign(relative=rows.nodes_per_second / rows.whole, node_seconds=1 / rows.nodes_per_second)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    cut = shown(table).query("method == 'reg' and num_parts > 1").dropna(subset=["relative"])
    times: Any = 1 / cut.set_index(["dataset", "num_parts"]).relative
    return Title("By REG an input node takes {times:.2f} times as long as in the whole batch", times=times)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    rows = shown(table)
    paper: Any = _efficient(reported.assign(dataset="paper", method="reg"), ["dataset"]) if len(reported) else None
    return lines(
        rows,
        x="num_parts",
        log_x=True,
        y="relative",
        group="method",
        facet="dataset",
        reported=None if paper is None else paper[["num_parts", "method", "relative"]],
        title=title(table, reported).text,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    cut = shown(table).query("num_parts > 1")
    return [
        claims.within(
            "efficiency-stays",
            f"REG's efficiency is {LEAST} to {MOST} times that of the whole batch at every K",
            cut.query("method == 'reg'"),
            value="relative",
            by=["dataset", "num_parts"],
            least=LEAST,
            most=MOST,
            form=".2f",
            timed=True,
        ),
        claims.least(
            "reg-most-efficient",
            "a node takes less time by REG than by METIS, range and random at every K",
            cut,
            value="node_seconds",
            among="method",
            winner="reg",
            rivals=RIVALS,
            by=["dataset", "num_parts"],
            timed=True,
        ),
    ]


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """Nodes per second with REG relative to the others', less 1."""
    cut = shown(table).query("num_parts > 1")
    ways: dict[str, Any] = {"value": "nodes_per_second", "among": "method", "by": ["dataset", "num_parts"]}
    return {f"gain-over-{rival}": claims.method_ratios(cut, between=("reg", rival), **ways) - 1 for rival in RIVALS}


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """REG's efficiency relative to the whole batch's at each K, and its mean gains over the other partitioners; the
    paper's numbers are from Table 6 and section 1."""
    paper = _efficient(reported.dropna(subset="num_parts").assign(dataset="ogbn-products (paper)"), ["dataset"])
    rows = shown(table)
    both = pd.concat([paper, rows.query("method == 'reg'")]).astype({"num_parts": int})
    wide = both.pivot_table("relative", "dataset", "num_parts").rename(columns=lambda k: f"K = {k}")
    speed = rows.query("num_parts > 1").pivot_table("nodes_per_second", ["dataset", "num_parts"], "method")
    told = reported.dropna(subset="reg_gains").set_index("method").reg_gains
    for rival in [rival for rival in RIVALS if rival in speed]:
        gains = (speed["reg"] / speed[rival] - 1).groupby("dataset").mean()
        wide[f"gains over {rival}"] = gains
        wide.loc["ogbn-products (paper)", f"gains over {rival}"] = told[rival]
    return wide.rename_axis("data set").rename_axis(None, axis=1).reset_index()
