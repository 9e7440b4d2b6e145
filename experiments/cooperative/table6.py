"""Cooperative Minibatching, Table 6: what dependent batches gain on top, modelled. A view of Table 4."""

from typing import Any

import pandas as pd

from experiments.cooperative.table4 import CASE, shown as rows_of
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

KEYS = ["dataset", "approach", "num_pes"]


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of LABOR-0 with the gain: the modelled time of the copy with a cache over that with dependent batches."""
    rows = rows_of(table).query("sampler == 'LABOR-0'")
    return rows.assign(
        modelled_gain=rows.cache_seconds / rows.kappa_seconds.astype(float),
        misses_saved=rows.cache_miss_rate / rows.kappa_miss_rate.astype(float),
    )


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    gain: Any = shown(table).set_index(KEYS).modelled_gain
    return Title("Modelled feature copy: {gain:.2f} times as fast with dependent batches", gain=gain)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    rows = shown(table)
    return lines(
        rows,
        x="num_pes",
        log_x=True,
        y="modelled_gain",
        group="approach",
        facet="dataset",
        reported=reported.rename(columns={"gain": "modelled_gain"}),
        title=title(table, reported).text,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = shown(table)
    return [
        claims.within(
            "dependence-gains",
            "in the model, dependent batches make the cached copy faster in all cases",
            rows,
            value="modelled_gain",
            by=[*CASE, "approach"],
            least=claims.MORE,
        ),
        claims.least(
            "cooperation-gains-more",
            "cooperative minibatching gains more from dependent batches than independent minibatching, whose caches "
            "contain the same rows several times",
            rows.assign(left=1 / rows.modelled_gain),
            value="left",
            among="approach",
            winner="cooperative",
            rivals=["independent"],
            by=CASE,
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Gains, the paper's from the copy columns of Table 4, the modelled ones, and the miss rates behind them."""
    both = reported.rename(columns={"gain": "paper"}).merge(shown(table), on=KEYS)
    return pd.DataFrame(
        {
            **{key: both[key] for key in KEYS},
            "paper, measured": both.paper,
            "modelled": both.modelled_gain,
            "deviation": (both.modelled_gain / both.paper - 1).map("{:+.0%}".format),
            "miss rate ρ": both.cache_miss_rate,
            "miss rate ρ, dependent": both.kappa_miss_rate,
            "c": both.cross_ratio,
        }
    )
