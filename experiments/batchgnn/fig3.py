"""BatchGNN, Figure 3: rows fetched in an epoch by the size of a macrobatch, and the time that fetching them takes."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pandas as pd
from pydantic import Field, PositiveInt

import workbench as wb
from experiments.batchgnn.rank_fetches import (
    NETWORK_BYTES_PER_SECOND,
    EpochConfig,
    counts_of_ranks,
    row_bytes,
    short_name,
)
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.macrobatch.plan import ReadCounts

CASE = ["dataset", "num_ranks", "batch_size", "run"]
COUNT_BYTES = 8


class Config(EpochConfig):
    """Macrobatches of several sizes.

    Args:
        sizes: mini-batches per macrobatch; "all": those of an epoch.
    """

    sizes: tuple[PositiveInt | Literal["all"], ...] = Field(min_length=2)


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    for number in range(config.runs):
        ranks = [counts.sampled for counts in counts_of_ranks(config, data, number)]
        count = len(ranks[0].fetched)
        for size in sorted({count if size == "all" else min(size, count) for size in config.sizes}):
            yield {
                "macrobatch": size,
                "run": number,
                "num_batches": count,
                "num_nodes": data.graph.num_nodes,
                "rows": sum(int(one.fetched.counts(size).sum()) for one in ranks),
                "relays": (len(config.fanouts) + 1) * -(-count // size),
                **modelled(ranks, size, config, row_bytes(data)),
            }


def modelled(ranks: Sequence[ReadCounts], size: int, config: Config, nbytes: int) -> dict[str, float]:
    """Equation 3 per rank: bytes of topology, relays and features, and their seconds on the paper's network."""
    options: dict[str, Any] = {"size": size, "row_bytes": nbytes, "relay_bytes": relay_bytes(config)}
    costs = [wb.macrobatch.macrobatch_bytes(counts, **options) for counts in ranks]
    parts = {name: sum(getattr(cost, name) for cost in costs) / len(ranks) for name in wb.macrobatch.FetchBytes._fields}
    columns = {f"{name}_bytes": value for name, value in parts.items()}
    return {**columns, "modelled_seconds": sum(parts.values()) / NETWORK_BYTES_PER_SECOND}


def relay_bytes(config: EpochConfig) -> int:
    """C of one rank: a request and an answer per hop and for the features, each with a count per rank."""
    return 2 * (len(config.fanouts) + 1) * config.num_ranks * COUNT_BYTES


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows and modelled seconds relative to those of mini-batches one by one."""
    base = table.loc[table.macrobatch == 1, [*CASE, "rows", "modelled_seconds"]]
    alone = table.merge(base, "left", on=CASE, suffixes=("", "_alone"))
    return alone.assign(
        case=alone.dataset.map(short_name) + _ranks(alone) + alone.batch_size.map(" × {}".format),
        rows_of_one_by_one=alone["rows"] / alone.rows_alone,
        modelled_time_of_one_by_one=alone.modelled_seconds / alone.modelled_seconds_alone,
    )


def papers(reported: pd.DataFrame) -> pd.DataFrame:
    """The paper's rows relative to those of macrobatches of 1."""
    alone = float(reported.loc[reported.macrobatch == 1, "fetched_millions"].iloc[0])
    return reported.assign(
        case=reported.dataset + _ranks(reported) + " × 1024", rows_of_one_by_one=reported.fetched_millions / alone
    )


def _ranks(rows: pd.DataFrame) -> pd.Series:
    return rows.num_ranks.map(", {} ranks".format)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows: Any = shown(table)
    share = rows[rows.macrobatch == rows.num_batches].set_index(CASE).rows_of_one_by_one
    return Title("One macrobatch per epoch fetches {share:.0%} of the rows", share=share)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    rows = shown(table)
    paper = papers(reported)
    others = paper.assign(rows_of_one_by_one=float("nan"))  # so that all cases differ in colour
    return lines(
        pd.concat([rows, others]),
        x="macrobatch",
        y=["rows_of_one_by_one", "modelled_time_of_one_by_one"],
        group="case",
        log_x=True,
        reported=paper,
        title=title(table, reported).text,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = shown(table)
    bytes_of: Any = rows.groupby(CASE).topology_bytes
    falls: dict[str, Any] = {"along": "macrobatch", "by": CASE, "falling": True}
    return [
        claims.monotone("rows-fall", "fewer rows are fetched with larger macrobatches", rows, value="rows", **falls),
        claims.monotone(
            "time-falls",
            "in the model, an epoch's fetches take less time with larger macrobatches",
            rows,
            value="modelled_seconds",
            **falls,
        ),
        claims.within(
            "topology-stays",
            "the bytes of topology do not depend on the size of the macrobatch",
            rows.assign(spread=bytes_of.transform("max", skipna=False) / bytes_of.transform("min", skipna=False)),
            value="spread",
            by=[*CASE, "macrobatch"],
            least=1.0,
            most=1.0,
        ),
    ]


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """Rows of an epoch's macrobatch relative to those of mini-batches one by one, with the paper's number of ranks."""
    rows = shown(table)
    whole = rows[(rows.macrobatch == rows.num_batches) & rows.num_ranks.isin(reported.num_ranks)]
    return {"rows-of-one-by-one": whole.set_index(CASE).rows_of_one_by_one}


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Rows by size of the macrobatch, absolute and relative to mini-batches one by one; the paper's first."""
    here: Any = shown(table).groupby([*CASE[:-1], "macrobatch"], sort=False).mean(numeric_only=True)
    parts = [
        papers(reported).assign(
            dataset=reported.dataset + " (paper)", batch_size=1024, rows=1e6 * reported.fetched_millions
        ),
        here.reset_index(),
    ]
    both: Any = pd.concat(parts)
    told = {
        "million rows": both.rows / 1e6,
        "of one by one": both.rows_of_one_by_one,
        "modelled bytes per rank": both.topology_bytes + both.relays_bytes + both.features_bytes,
    }
    return both.assign(**told)[[*CASE[:-1], "macrobatch", *told]]
