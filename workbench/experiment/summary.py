"""Summaries for the MLflow UI: one run per figure and state of its sweep, with figure, table and findings."""

from collections.abc import Sequence
from importlib.util import find_spec

import pandas as pd

from workbench.experiment.experiment import Experiment
from workbench.experiment.key import summary_key
from workbench.experiment.table import table_of
from workbench.experiment.tracked_page import log_library, tracked_page
from workbench.tracking.record import FINISHED, Run
from workbench.tracking.store import Store


def can_draw() -> bool:
    """Check that plotly is installed; machines that only run points may be without it."""
    return find_spec("plotly") is not None


def log_summary(figure: Experiment, size: str, runs: Sequence[Run], store: Store) -> None:
    """Draw a figure from its runs and store it, unless the same code has logged the same runs before.

    Args:
        figure: to draw.
        size: of the runs.
        runs: of all points of its sweep; failed ones are skipped.
        store: keeps the summary.
    """
    finished = [run for run in runs if run.status == FINISHED]
    table = table_of(finished)
    key = summary_key(figure.name, figure.figure_digest(), [run.run_id for run in finished])
    found = figure.check(table)
    findings = pd.DataFrame([vars(finding) for finding in found])
    artifacts = {"table.csv": table.to_csv(index=False), "findings.csv": findings.to_csv(index=False)}
    if can_draw():
        artifacts["figure.html"] = tracked_page(figure.draw(table), log_library(figure.name.partition("/")[0], store))
    held = f"{sum(finding.held for finding in found)} of {len(found)}"
    tags = {**finished[-1].point.tags, "claim": figure.spec.claim, "held": held}
    store.log_summary(figure.name, figure.sweep.name, size, key, artifacts, tags)
