"""MariusGNN: test accuracy over seconds of training, in memory, from disk, with DGL and with PyG.

Rows are those of node_classification. PyG has a curve where its loader runs: it needs pyg-lib or torch-sparse.
"""

from typing import Any

import pandas as pd

from experiments.mariusgnn.node_classification import CASE, LONGER, learnt, panels, without_controls
from experiments.mariusgnn.training_systems import DGL, DISK, MEMORY
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

NEAR = 0.02
"""Accuracy below the best of training in memory that counts as reached."""


def curves(table: pd.DataFrame) -> pd.DataFrame:
    """Seconds of training up to the end of every epoch, and the accuracy then."""
    rows: Any = without_controls(table).sort_values("epoch", kind="stable")
    seconds: Any = rows.groupby([*CASE, "system"], sort=False).epoch_seconds.cumsum()
    return rows.assign(train_seconds=seconds)


def reached(table: pd.DataFrame) -> pd.DataFrame:
    """Seconds until every system is near the best accuracy of training in memory; infinite if it never is."""
    rows: Any = curves(table)
    found = []
    for case, part in rows.groupby(CASE, sort=False):
        target = part[part.system == MEMORY].accuracy.max(skipna=False) - NEAR
        for system, curve in part.groupby("system", sort=False):
            seconds = curve.train_seconds[curve.accuracy >= target].min()
            told = {"system": system, "target": target, "seconds": float("inf") if pd.isna(seconds) else seconds}
            found.append(dict(zip(CASE, case, strict=True)) | told)
    return pd.DataFrame(found)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    wide: Any = reached(table).pivot_table("seconds", CASE, "system")
    return Title(
        "From disk, accuracy comes within {near:.0%} of memory's in {cases} cases",
        near=NEAR,
        cases=wide[DISK] < float("inf"),
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    rows = curves(table).rename(columns={"train_seconds": "seconds of training"})
    return lines(
        rows.assign(panel=panels(rows)),
        x="seconds of training",
        y="accuracy",
        group="system",
        facet=["panel"],
        title=title(table, reported).text,
    ).update_yaxes(rangemode="normal")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    wide: Any = reached(table).pivot_table("seconds", CASE, "system")
    rows = (wide[DISK] < float("inf")).astype(float).reset_index(name="near")
    reaches = f"from disk the accuracy comes within {NEAR:.0%} of the best in memory"
    as_soon = f"in at most {LONGER:g} times the seconds"
    longer = (wide[DISK] / wide[MEMORY]).reset_index(name="longer")
    found = [
        *claims.once_trained(
            [claims.within("reaches-it", reaches, rows, value="near", by=CASE, least=1)], learnt(table, MEMORY, DISK)
        ),
        claims.within("as-soon", as_soon, longer, value="longer", by=CASE, most=LONGER, form=".2f", timed=True),
    ]
    if DGL in wide:
        ratio = (wide[DGL] / wide[DISK]).reset_index(name="ratio")
        statement = "and does so sooner than DGL's"
        found.append(
            claims.within(
                "sooner-than-dgl", statement, ratio, value="ratio", by=CASE, least=claims.MORE, form=".2f", timed=True
            )
        )
    return found


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Seconds until the accuracy is near the best in memory, by system."""
    found: Any = reached(table)[["dataset", "capacity", "system", "target", "seconds"]]
    return found
