"""Rethinking Graph Data Placement, preprocessing: seconds of placement, METIS and PaGraph for four parts."""

from typing import Any

import pandas as pd

from experiments.performance import placement
from experiments.performance.placement import ALGORITHM_1, PARTITIONERS, UNIFORM
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

OURS = "placement with probabilities"


class Config(placement.Config):
    """One graph, placed and partitioned for several devices."""

    device: str = "cpu"


run = placement.run


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """CPU seconds by method; Algorithm 1 alone, and with the computation of the probabilities."""
    rows: Any = table.assign(dataset=table.graph.str.removeprefix("synthetic-"))
    kept = rows[rows.placement.isin((ALGORITHM_1, UNIFORM, *PARTITIONERS))]
    first: Any = kept[kept.placement == ALGORITHM_1]
    both = first.assign(placement=OURS, seconds=first.seconds + first.probability_seconds)
    found: Any = pd.concat([kept, both])[["dataset", "nodes", "edges", "placement", "seconds"]]
    return found


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    wide: Any = shown(table).pivot_table("seconds", "dataset", "placement")
    gain = wide[[*PARTITIONERS]].min(axis=1) / wide[OURS]
    return Title("Partitioning takes {gain:.1f} times as long as probabilities and Algorithm 1", gain=gain)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    """CPU seconds over the number of edges, a line per method."""
    from workbench.plots.lines import lines

    rows = shown(table)
    return lines(
        rows.rename(columns={"seconds": "cpu_seconds"}),
        x="edges",
        y="cpu_seconds",
        group="placement",
        log_y=True,
        title=title(table, reported).text,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    searched: Any = table[table.placement == UNIFORM]
    told = "computing probabilities and placing rows takes less time than METIS and PaGraph"
    return [
        claims.least(
            "faster",
            told,
            shown(table),
            value="seconds",
            among="placement",
            winner=OURS,
            rivals=PARTITIONERS,
            by=["dataset"],
            timed=True,
        ),
        claims.within(
            "gap",
            "the search's cost is within 1 % of its lower bound",
            searched,
            value="gap",
            by=["graph"],
            most=0.01,
            form=".3%",
        ),
    ]


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """Seconds of partitioners relative to those of probabilities and Algorithm 1."""
    rows, ways = shown(table), {"value": "seconds", "among": "placement", "by": ["dataset"]}
    return {f"{name.lower()}-times": claims.method_ratios(rows, between=(name, OURS), **ways) for name in PARTITIONERS}


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Seconds, the paper's (elapsed, four parts, full graphs) beside CPU seconds here; and multiples of the first."""
    here: Any = (
        shown(table).pivot_table("seconds", ["dataset", "nodes", "edges"], "placement", sort=False).reset_index()
    )
    both = here.merge(reported, on="dataset", how="left")
    columns: dict[str, Any] = {name: both[name] for name in ("dataset", "nodes", "edges")}
    for name, paper in {OURS: "placement_seconds", "METIS": "metis_seconds", "PaGraph": "pagraph_seconds"}.items():
        columns |= {f"{name}, paper": both[paper], f"{name}, here": both[name]}
        if name != OURS:
            columns[f"{name} ÷ placement, paper"] = both[paper] / both.placement_seconds
            columns[f"{name} ÷ placement, here"] = both[name] / both[OURS]
    return pd.DataFrame(columns | {f"{ALGORITHM_1} alone, here": both[ALGORITHM_1]})
