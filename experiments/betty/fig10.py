"""Betty, Figure 10: the settings of Figure 2 as micro-batches that fit the capacity. A view of Figure 2's rows."""

from typing import Any

import pandas as pd

from experiments.betty import fig2
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of Figure 2 and the measured peak relative to the capacity: infinite if no number of parts fits, missing if
    the machine had too little memory to run it."""
    rows = fig2.shown(table)
    fills = rows.cut_peak_bytes.astype(float) / rows.capacity_bytes
    refused = rows.refused.notna() if "refused" in rows else False
    return rows.assign(fills=fills.mask(refused, float("inf")))


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows: Any = shown(table).set_index(["dataset", "panel", "setting"])
    fit, whole = rows.fills <= 1, rows.needed_bytes <= rows.capacity_bytes
    return Title("{fit} settings fit when cut into K parts, {whole} in one piece", fit=fit, whole=whole)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.bars import bars

    rows = shown(table)
    return bars(
        [_bar(row) for row in rows.itertuples()],
        capacity_bytes=int(rows.capacity_bytes.iloc[0]),
        axes=fig2.axes_of(rows),
        title=title(table, reported).text,
    )


def _bar(row: Any) -> Any:
    from workbench.plots.bars import Bar

    at = fig2.title_of(row), row.setting
    if pd.isna(row.num_parts):
        return Bar(*at, 0, "no K fits", measured=False)
    measured, k = pd.notna(row.cut_peak_bytes), f"K={row.num_parts:.0f}"
    hover = f"{k}, planned for {row.plan_bytes / 2**20:,.1f} MiB<br>inputs {row.inputs_ratio:.2f} × the batch's"
    return Bar(*at, int(row.cut_peak_bytes if measured else row.plan_bytes), k, measured, hover)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows: Any = shown(table)
    cut = rows[rows.num_parts.notna()]  # no number of parts fits the others, which "all-fit" says
    run = rows[rows.fills.notna()]  # the machine had too little memory for the others
    over = cut.query("needed_bytes > capacity_bytes")
    case = ["dataset", "panel", "setting"]
    return [
        claims.within(
            "all-fit",
            "the measured peak of every setting that this machine has the memory to run is within the capacity",
            run,
            value="fills",
            by=case,
            most=1,
            form=".1%",
        ),
        claims.within(
            "over-is-cut",
            "what Figure 2 shows beyond the capacity is cut, into two or more",
            over,
            value="num_parts",
            by=case,
            least=2,
            form=".0f",
        ),
        claims.monotone(
            "more-parts",
            "richer aggregators, more and wider layers and larger fanouts need no fewer micro-batches",
            cut,
            value="num_parts",
            along="place",
            named="setting",
            by=["dataset", "panel"],
            change=0,
        ),
        claims.within(
            "as-planned",
            "no micro-batch ran out of memory and was cut again",
            cut,
            value="cut_again",
            by=case,
            most=0,
            form=".0f",
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Micro-batches in the paper and here, and peaks of the whole batch and of micro-batches over the capacity."""
    rows = shown(table)
    here = rows[["panel", "dataset", "setting"]].assign(
        **{
            "K, here": rows.num_parts,
            "whole ÷ capacity": rows.needed_bytes / rows.capacity_bytes,
            "cut ÷ capacity": rows.fills,
            "inputs, parts ÷ batch": rows.inputs_ratio,
        }
    )
    paper = reported.assign(setting=reported.setting.astype(str)).rename(columns={"num_parts": "K, paper"})
    both = here.merge(paper[["panel", "setting", "K, paper"]], "left", ["panel", "setting"])
    both.insert(3, "K, paper", both.pop("K, paper"))
    return both
