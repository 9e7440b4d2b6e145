"""MariusGNN: filtered MRR over seconds of training, in memory, from disk, and with DGL; rows of link_prediction."""

from typing import Any

import pandas as pd

from experiments.mariusgnn.link_prediction import CASE, NAMES, NEAR, comparison, learnt
from experiments.mariusgnn.link_systems import BETA, COMET, DGL, MEMORY
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title


def curves(table: pd.DataFrame) -> pd.DataFrame:
    """Seconds of training up to the end of every epoch, of the fastest run, and the mean MRR then."""
    rows: Any = comparison(table).sort_values("epoch", kind="stable")
    seconds: Any = rows.groupby([*CASE, "system", "seed"], sort=False).epoch_seconds.cumsum()
    rows = rows.assign(train_seconds=seconds, model=rows.encoder.map(NAMES))
    groups: Any = rows.groupby([*CASE, "model", "system", "epoch"], sort=False)
    # What else the machine does only adds time.
    found = groups[["mrr"]].mean(skipna=False).assign(train_seconds=groups.train_seconds.min())
    return found.reset_index()


def best(table: pd.DataFrame) -> pd.DataFrame:
    """The best mean MRR of every system, one column each."""
    wide: Any = curves(table).pivot_table(
        "mrr", ["dataset", "model"], "system", aggfunc=lambda mrr: mrr.max(skipna=False)
    )
    return wide


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    every = best(table)
    systems = [name for name in (MEMORY, COMET, BETA, DGL) if name in every]
    of: Any = {f"system{place}": every[name].dropna() for place, name in enumerate(systems)}
    told = ", ".join(f"{{system{place}:.2f}} {name}" for place, name in enumerate(systems))
    return Title(f"Best MRR: {told}", **of)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    x = "seconds of training, fastest run"
    return lines(
        curves(table).rename(columns={"train_seconds": x, "mrr": "filtered MRR"}),
        x=x,
        y="filtered MRR",
        group="system",
        facet=["dataset", "model"],
        title=title(table, reported).text,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    wide: Any = best(table)
    below: Any = wide[MEMORY] - wide[COMET]
    statement = f"from disk in COMET's order the best MRR is at most {NEAR} below the best in memory"
    by = ["dataset", "model"]
    near = claims.within("near-memory", statement, below.reset_index(name="below"), value="below", by=by, most=NEAR)
    compared: Any = wide[[MEMORY, COMET]].melt(ignore_index=False, var_name="system", value_name="mrr").reset_index()
    return claims.once_trained([near], learnt(compared, [*by, "system"]))


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Best MRR by system; the paper shows curves."""
    return best(table).reset_index()
