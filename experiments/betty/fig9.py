"""Betty, Figure 9: in-degrees of the destinations of a batch and of its two micro-batches. A view of Table 2's rows."""

from typing import Any

import pandas as pd

from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

HALF_OF_THE_PAPERS = 0.095
PARTS = ["part 0", "part 1"]


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """One row per in-degree: destinations of the whole batch and of each of two parts, and the parts' difference."""
    names = [column for column in table if column.startswith("degree_")]
    rows = table.query("num_parts <= 2").melt(
        ["dataset", "num_parts", "part"], names, var_name="degree", value_name="destinations"
    )
    rows = rows.assign(degree=rows.degree.str.removeprefix("degree_").astype(int))
    name = rows.num_parts.map({1: "batch", 2: "part "}) + rows.part.astype(str).where(rows.num_parts == 2, "")
    keys = ["dataset", "degree", "name"]
    wide = rows.assign(name=name).drop_duplicates(keys).pivot(index=keys[:2], columns="name", values="destinations")
    least, most = wide[PARTS].min(axis=1, skipna=False), wide[PARTS].max(axis=1, skipna=False)
    wide = wide.assign(apart=1 - least / most).reset_index()
    kept: Any = wide[~(wide.batch <= 0)]
    return kept


def last(table: pd.DataFrame) -> pd.DataFrame:
    """The last bucket of each data set, and its ratio to the largest other bucket."""
    rows = shown(table)
    end = rows.degree == rows.groupby("dataset").degree.transform("max")
    others = rows[~end].groupby("dataset").batch.max(skipna=False)
    return rows[end].assign(times=lambda found: found.batch / found.dataset.map(others))


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows: Any = last(table).set_index("dataset")
    share = rows.batch / shown(table).groupby("dataset").batch.sum()
    text = "The last bucket has {share:.0%} of the destinations; in it REG's two parts are {apart:.0%} apart"
    return Title(text, share=share, apart=rows.apart)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.bars import degree_histogram

    panels: dict[str, dict[str, dict[int, int]]] = {}
    for dataset, rows in shown(table).groupby("dataset", sort=False):
        counts = {name: dict(zip(rows.degree, rows[name].astype(int), strict=True)) for name in ("batch", *PARTS)}
        panels[f"{dataset} · batch"] = {"batch": counts["batch"]}
        panels[f"{dataset} · two micro-batches"] = {name: counts[name] for name in PARTS}
    return degree_histogram(panels, title=title(table, reported).text)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = last(table)
    return [
        claims.within(
            "last-is-largest",
            "the last bucket is larger than any other",
            rows,
            value="times",
            by=["dataset", "degree"],
            least=claims.MORE,
            form=".2f",
        ),
        claims.within(
            "last-is-unequal",
            "REG's two parts are at least half as far apart in it as the paper's 19 %",
            rows,
            value="apart",
            by=["dataset", "degree"],
            least=HALF_OF_THE_PAPERS,
            form=".1%",
        ),
    ]


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """How far apart two parts are in the last bucket."""
    return {"last-19-percent": last(table).set_index("dataset").apart}


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Destinations by in-degree, of ogbn-arxiv in the paper and here, and the difference between two parts."""
    paper = reported.set_index("degree")[["destinations", "apart"]].add_suffix(", ogbn-arxiv (paper)")
    wide = shown(table).pivot(index="degree", columns="dataset", values=["batch", *PARTS, "apart"])
    wide.columns = [f"{what}, {dataset}" for what, dataset in wide.columns]
    return paper.join(wide, how="outer").rename_axis("in-degree").reset_index()
