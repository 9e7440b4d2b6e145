"""BatchGNN, Table 5: rows of features that all ranks fetch in an epoch, one by one, in macrobatches, with the cache."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from experiments.batchgnn.rank_fetches import (
    CACHE,
    MACROBATCH,
    ONE_BY_ONE,
    SYSTEMS,
    EpochConfig,
    counts_of_ranks,
    fetched_rows,
    short_name,
)
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

CASE = ["dataset", "num_ranks", "ownership", "run"]
TOLERANCE, ROUNDING = 0.05, 0.05e6
"""Of the paper's figures: the part by which ours may differ, beyond half a unit of their last digit."""
EXACT = "ogbn-arxiv"
"""The data set on which the paper's figures are counted again, not scaled."""


class Config(EpochConfig):
    """An epoch, all of whose mini-batches are one macrobatch per rank."""


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    for number in range(config.runs):
        ranks = counts_of_ranks(config, data, number)
        for fetching in (ONE_BY_ONE, MACROBATCH, CACHE):
            rows = fetched_rows(ranks, fetching)
            yield {
                "fetching": fetching,
                "run": number,
                "num_batches": len(ranks[0]),
                "num_nodes": data.graph.num_nodes,
                "rows": rows,
                "rows_per_node": rows / data.graph.num_nodes,
            }


def named(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with the paper's names of data sets."""
    return table.assign(dataset=table.dataset.map(short_name))


def papers(reported: pd.DataFrame) -> pd.DataFrame:
    """The paper's rows, by how the systems fetch, absolute and per node; METIS is DistDGL's alone."""
    return reported.assign(
        fetching=reported.system.str.removesuffix("-M").map(SYSTEMS),
        ownership=["metis" if system.endswith("-M") else "random" for system in reported.system],
        rows=1e6 * reported.fetched_millions,
        rows_per_node=reported.fetched_millions / reported.nodes_millions,
    )


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    fewer: Any = ratios(table).set_index(CASE)[ONE_BY_ONE]
    return Title("A macrobatch fetches {fewer:.1f} times fewer rows than its mini-batches", fewer=fewer)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    rows = named(table)
    rows = rows.assign(fetching=_with_owner(rows))
    paper: Any = papers(reported)
    paper = paper.assign(fetching=_with_owner(paper))
    return lines(
        rows,
        x="num_ranks",
        y="rows_per_node",
        group="fetching",
        facet="dataset",
        log_x=True,
        reported=paper[paper.dataset.isin(rows.dataset)],
        title=title(table, reported).text,
    )


def _with_owner(rows: pd.DataFrame) -> pd.Series:
    return rows.fetching + rows.ownership.map(lambda owner: "" if owner == "random" else f", {owner}")


def ratios(table: pd.DataFrame) -> pd.DataFrame:
    """Rows relative to those of macrobatches, by case; one rank fetches none."""
    several = table[table.num_ranks > 1]
    wide: Any = several.pivot_table("rows", CASE, "fetching")
    return wide.div(wide[MACROBATCH], axis=0).reset_index()


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    several: Any = table[table.num_ranks > 1]
    findings = [
        claims.least(
            "macrobatch-fetches-fewer",
            "a macrobatch fetches fewer rows than its mini-batches one by one",
            several,
            value="rows",
            among="fetching",
            winner=MACROBATCH,
            rivals=[ONE_BY_ONE],
            by=CASE,
        ),
        *_cache(ratios(table)),
    ]
    if len(found := _beside_paper(table, reported)):
        statement = f"the paper's rows on arxiv, within {TOLERANCE:.0%} and their rounding"
        found = found.assign(off=found.off.clip(lower=0))
        options: dict[str, Any] = {"by": ["fetching", "run"], "most": TOLERANCE, "form": ".2%"}
        findings.append(claims.within("as-printed", statement, found, value="off", **options))
    if "metis" in set(table.ownership):
        findings.append(_metis(table))
    return findings


def _cache(found: Any) -> Iterator[Finding]:
    """On arxiv and products the cache fetches more than macrobatches alone, on papers100M fewer."""
    papers = found.dataset.map(short_name) == "papers100M"
    statement = "with the aggregation cache a macrobatch fetches"
    bounds: dict[str, tuple[Any, str, Any]] = {
        "cache-fetches-more": (~papers, "more rows on arxiv and products", {"least": claims.MORE}),
        "cache-fetches-fewer": (papers, "fewer rows on papers100M", {"most": claims.LESS}),
    }
    for name, (where, text, bound) in bounds.items():
        if where.any():
            yield claims.within(name, f"{statement} {text}", found[where], value=CACHE, by=CASE, form=".2f", **bound)


def _beside_paper(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Counts on the paper's own graph and setting, and how far they are from its figures, beyond their rounding."""
    counted: Any = table[table.dataset == EXACT]
    here = named(counted).drop(columns="rows_per_node")
    paper = papers(reported)[["dataset", "num_ranks", "ownership", "fetching", "rows"]]
    both = here.merge(paper, on=["dataset", "num_ranks", "ownership", "fetching"], suffixes=("", "_paper"))
    return both.assign(off=((both.rows - both.rows_paper).abs() - ROUNDING) / both.rows_paper)


def _metis(table: pd.DataFrame) -> Finding:
    """DistDGL with METIS still fetches more than a macrobatch with random owners."""
    keys = ["dataset", "num_ranks", "run"]
    rows: Any = table[table.num_ranks > 1].set_index(keys)
    ways: dict[str, Any] = {
        "metis": rows[(rows.fetching == ONE_BY_ONE) & (rows.ownership == "metis")].rows,
        "macrobatch": rows[(rows.fetching == MACROBATCH) & (rows.ownership == "random")].rows,
    }
    both: Any = (ways["metis"] / ways["macrobatch"].reindex(ways["metis"].index)).to_frame("ratio")
    statement = "mini-batches one by one with METIS owners fetch more than a macrobatch with random owners"
    return claims.within(
        "metis-does-not-replace-it",
        statement,
        both.reset_index(),
        value="ratio",
        by=keys,
        least=claims.MORE,
        form=".2f",
    )


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """Rows of mini-batches one by one relative to a macrobatch's, with the paper's ranks and random owners."""
    random: Any = named(table).query("ownership == 'random'")
    several: Any = random.merge(papers(reported)[["dataset", "num_ranks"]].drop_duplicates())
    ways: dict[str, Any] = {"value": "rows", "among": "fetching", "between": (ONE_BY_ONE, MACROBATCH), "by": CASE}
    return {
        f"times-fewer-on-{name}": claims.method_ratios(rows, **ways)
        for name, rows in several.groupby("dataset", sort=False)
    }


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Millions of rows and rows per node, the paper's and ours (means over the seeds)."""
    keys = ["dataset", "num_ranks", "ownership", "fetching"]
    cases: Any = named(table).groupby(keys, sort=False)
    here = cases[["rows", "rows_per_node"]].mean().reset_index()
    both = here.merge(papers(reported)[[*keys, "rows", "rows_per_node"]], on=keys, how="left", suffixes=("", "_paper"))
    columns = {key: both[key] for key in keys} | {
        "paper, million rows": both.rows_paper / 1e6,
        "here, million rows": both.rows / 1e6,
        "paper, rows per node": both.rows_per_node_paper,
        "here, rows per node": both.rows_per_node,
    }
    return pd.DataFrame(columns)
