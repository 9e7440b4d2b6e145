"""BatchGNN, Table A3: seconds that building the aggregation cache takes, by ranks. A view of Table 4."""

from typing import Any

import pandas as pd

from experiments.batchgnn.rank_fetches import CACHE, short_name
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title, case_words


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The rows with a cache, by data set and number of ranks; beside its seconds, an epoch's."""
    rows = table[table.fetching == CACHE]
    return rows.assign(dataset=rows.dataset.map(short_name), of_an_epoch=rows.cache_seconds / rows.epoch_seconds)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows: Any = shown(table).set_index(["dataset", "model", "num_ranks"])
    return Title("Building the cache takes {epochs:.2f} epochs", epochs=rows.of_an_epoch)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    rows = shown(table)
    others = reported.assign(cache_seconds=float("nan"))  # so that all data sets differ in colour
    return lines(
        pd.concat([rows, others]),
        x="num_ranks",
        y="cache_seconds",
        group="dataset",
        log_x=True,
        log_y=True,
        units={"cache_seconds": "s"},
        reported=reported,
        title=title(table, reported).text,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    statement = "building the cache takes less time with more ranks"
    rows = shown(table)
    options: dict[str, Any] = {"value": "cache_seconds", "along": "num_ranks", "by": ["dataset", "model"]}
    found = [
        claims.within(
            "pays-off",
            "building the cache takes less time than an epoch",
            rows,
            value="of_an_epoch",
            by=["dataset", "model", "num_ranks"],
            most=claims.LESS,
            timed=True,
        )
    ]
    if rows.num_ranks.nunique() > 1:
        found.append(claims.monotone("faster-with-ranks", statement, rows, falling=True, timed=True, **options))
    return found


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Seconds by number of ranks; the paper's first."""
    here = shown(table).groupby(["dataset", "num_ranks"], sort=False).cache_seconds.median().reset_index()
    parts = [reported.assign(dataset=reported.dataset + " (paper)"), here]
    wide = pd.concat(parts).pivot_table("cache_seconds", "dataset", "num_ranks", sort=False)
    return wide.rename(columns=lambda ranks: case_words(["num_ranks"], ranks)).rename_axis(columns=None).reset_index()
