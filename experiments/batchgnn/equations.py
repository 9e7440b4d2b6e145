"""BatchGNN, equations 2 to 5: bytes of the cost models beside those that ranks exchange. A view of Table 4."""

from typing import Any

import pandas as pd

from experiments.batchgnn.rank_fetches import MACROBATCH, ONE_BY_ONE, short_name
from experiments.batchgnn.table4 import several_ranks
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

CASE = ["dataset", "model", "num_ranks", "fetching"]
ROUNDING = 5e-6
"""Recorded tables have six digits of numbers that are not whole."""
_MODELLED = "modelled (MiB)"
TERMS = {"topology": "topology, Σ T", "features": "features, S Σ |A|"}


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """One row per point and term of the equations: bytes as modelled and as counted, and their quotient."""
    several = several_ranks(table)
    parts = [
        several[CASE].assign(
            term=text, modelled_bytes=several[f"modelled_{term}_bytes"], counted_bytes=several[f"{term}_bytes"]
        )
        for term, text in TERMS.items()
    ]
    rows = pd.concat(parts)
    return rows.assign(counted_over_modelled=rows.counted_bytes / rows.modelled_bytes)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows: Any = shown(table).set_index([*CASE, "term"])
    exact = (rows.counted_over_modelled - 1).abs() <= ROUNDING
    return Title("Equations 2 to 5 are exact to the byte in {exact} terms", exact=exact)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.axes import log_axis
    from workbench.plots.lines import lines

    rows = shown(table)
    rows = rows.assign(way=rows.fetching + ", " + rows.term)
    return (
        lines(
            rows.assign(**{_MODELLED: rows.modelled_bytes / 2**20}),
            x=_MODELLED,
            y="counted_bytes",
            group="way",
            log_y=True,
            units={"counted_bytes": "MiB"},
            title=title(table, reported).text,
        )
        .update_traces(mode="markers")
        .update_xaxes(log_axis(rows.modelled_bytes / 2**20))
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = shown(table)
    by = [*CASE, "term"]
    return [
        claims.within(
            "exact",
            "the bytes that ranks receive are those of the equations, to the byte",
            rows,
            value="counted_over_modelled",
            by=by,
            least=1 - ROUNDING,
            most=1 + ROUNDING,
        ),
        claims.least(
            "headers-shrink",
            "a macrobatch sends fewer bytes of headers than its mini-batches one by one",
            several_ranks(table),
            value="relays_bytes",
            among="fetching",
            winner=MACROBATCH,
            rivals=[ONE_BY_ONE],
            by=CASE[:-1],
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Bytes of each term as modelled and as counted; and those of headers and requests, which the equations call C."""
    wide: Any = several_ranks(table).assign(dataset=lambda rows: rows.dataset.map(short_name))
    columns = [f"{prefix}{term}_bytes" for term in TERMS for prefix in ("modelled_", "")]
    return wide[[*CASE, *columns, "relays_bytes", "request_bytes"]].reset_index(drop=True)
