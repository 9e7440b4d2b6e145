"""MariusGNN, link prediction on FB15k-237: MRR in memory and from disk in the orders of COMET, BETA and our own."""

import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from pydantic import PositiveInt

from experiments.mariusgnn.link_systems import BALANCED, BETA, COMET, DGL, MEMORY, SYSTEMS, LinkConfig
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.interval import decided_within, expected_within, mean_intervals
from workbench.experiment.title import Title

CASE = ["dataset", "encoder"]
NAMES = {"none": "DistMult", "sage-mean": "SAGE", "gat": "GAT"}
WITHIN, KEPT = 0.015, 0.01
"""Of MRR: how far below the paper's in memory, and how far below COMET's in the balanced order."""


class Config(LinkConfig):
    """Training with one system.

    Args:
        epochs: number of epochs; the test triples are ranked after each.
    """

    epochs: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    """One row per epoch; none of DGL where it is not installed."""
    if config.system == DGL and not find_spec("dgl"):
        return
    kg = config.dataset.load()
    with TemporaryDirectory() as folder:
        system = SYSTEMS[config.system](config, kg, Path(folder) / "store")
        for epoch in range(config.epochs):
            start = time.perf_counter()
            losses = [float(loss) for loss in system.epoch(epoch)]
            seconds = time.perf_counter() - start
            found = system.metrics(kg.test)
            yield {
                "epoch": epoch + 1,
                "num_steps": len(losses),
                "epoch_seconds": seconds,
                "loss": sum(losses) / len(kg.train),
                "mrr": found.mrr,
                "hits_at_1": found.hits_at_1,
                "hits_at_3": found.hits_at_3,
                "hits_at_10": found.hits_at_10,
                **system.columns(),
            }


def last_epochs(table: pd.DataFrame) -> pd.DataFrame:
    """The rows after the last epoch of every run, with the paper's names of the models."""
    rows: Any = table[table.epoch == table.groupby([*CASE, "system", "seed"]).epoch.transform("max")]
    return rows.assign(model=rows.encoder.map(NAMES))


def differences(table: pd.DataFrame, minuend: str, subtrahend: str) -> pd.DataFrame:
    """Differences of MRR between two orders, by run."""
    run, rows = [*CASE, "seed"], last_epochs(table)
    one, other = (rows.loc[rows.system == name, [*run, "mrr"]] for name in (minuend, subtrahend))
    both: Any = one.merge(other, on=run, suffixes=("", "_other"))
    return both[run].assign(difference=both.mrr - both.mrr_other)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    apart: Any = 100 * differences(table, COMET, BETA).groupby(CASE).difference.mean()
    return Title("From disk, COMET's MRR exceeds BETA's by {apart:.1f} points", apart=apart)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import interval_dots

    rows = last_epochs(table)
    found = mean_intervals(rows.assign(case=rows.model + " · " + rows.dataset), value="mrr", by=["case", "system"])
    return interval_dots(
        found,
        x="case",
        y="mrr",
        group="system",
        title=title(table, reported).text,
        subtitle=f"filtered, mean and 95 % interval of {found.runs.max()} runs, after {rows.epoch.max()} epochs",
    ).update_yaxes(tickformat=".3f", title_text="filtered MRR")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    found = []
    beaten = differences(table, COMET, BETA)
    proven: Any = beaten[beaten.encoder != "gat"]
    if len(proven):
        found.append(
            expected_within(
                "comet-above-beta",
                "DistMult and SAGE reach a higher MRR in COMET's order than in BETA's",
                proven,
                value="difference",
                by=CASE,
                least=0.0,
                proven=True,
            )
        )
    ours = differences(table, BALANCED, COMET)
    if len(ours):
        statement = f"the balanced order loses at most {100 * KEPT:.0f} point of COMET's MRR"
        found.append(decided_within("balanced-as-comet", statement, ours, value="difference", by=CASE, least=-KEPT))
    below = beside_paper(table, reported)
    if len(below):
        statement = f"in memory, MRR is at most {WITHIN} below the paper's"
        found.append(expected_within("reaches-paper", statement, below, value="above", by=CASE, least=-WITHIN))
    found.append(_loads(table))
    return found


def _loads(table: pd.DataFrame) -> Finding:
    """Loads of the balanced order over COMET's."""
    ways: Any = table.groupby([*CASE, "system"]).num_loads
    wide: Any = ways.mean().mask(ways.apply(lambda loads: loads.isna().any())).unstack("system")
    ratio = (wide[BALANCED] / wide[COMET]).reset_index(name="ratio")
    statement = "the balanced order loads as many partitions as COMET's"
    return claims.within("equal-loads", statement, ratio, value="ratio", by=CASE, least=1.0, most=1.0)


def beside_paper(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """MRR in memory minus the paper's, by run, on its data set."""
    rows: Any = last_epochs(table).query("system == @MEMORY")
    paper: Any = reported[reported.system == MEMORY] if len(reported) else reported
    if not len(rows) or not len(paper):
        return pd.DataFrame()
    both = rows.merge(paper[["dataset", "model", "mrr"]], on=["dataset", "model"], suffixes=("", "_paper"))
    return both.assign(above=both.mrr - both.mrr_paper)


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """MRR by data set, model and system, after the last epoch; the paper's first."""
    columns = ["dataset", "model", "system", "mrr", "half_width", "hits_at_10", "epoch_seconds", "bias", "num_loads"]
    rows: Any = last_epochs(table).assign(bias=table.get("bias"))
    by = ["dataset", "model", "system"]
    means = rows.groupby(by)[["hits_at_10", "epoch_seconds", "bias", "num_loads"]].mean().reset_index()
    here = mean_intervals(rows, value="mrr", by=by).merge(means, on=by)
    paper: Any = reported.assign(dataset=reported.dataset + " (paper)")
    return pd.concat([paper.reindex(columns=columns), here.reindex(columns=columns)])
