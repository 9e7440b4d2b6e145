"""One run per figure and state of its sweep: the interactive figure, the table and the findings, for the MLflow UI."""

import hashlib
from collections.abc import Sequence
from importlib.util import find_spec

import pandas as pd

from workbench.experiment.experiment import Experiment
from workbench.experiment.table import table_of
from workbench.tracking.record import FINISHED, Run
from workbench.tracking.store import Store


def can_draw() -> bool:
    """Whether what draws figures is installed; on machines that only run points it may not be."""
    return find_spec("plotly") is not None


def log_summary(figure: Experiment, size: str, runs: Sequence[Run], store: Store) -> None:
    """Keep a figure as drawn from its points; the same points drawn by the same code again add nothing.

    Args:
        figure: to draw.
        size: of the runs.
        runs: of all points of its sweep; failed ones are left out.
        store: keeps runs.
    """
    finished = [run for run in runs if run.status == FINISHED]
    table = table_of(finished)
    parts = [figure.name, figure.figure_digest(), *(run.run_id for run in finished)]
    key = hashlib.sha256("".join(parts).encode()).hexdigest()
    findings = pd.DataFrame([vars(finding) for finding in figure.check(table)])
    artifacts = {"table.csv": table.to_csv(index=False), "findings.csv": findings.to_csv(index=False)}
    if can_draw():  # the page must work offline, so the library goes with it
        artifacts["figure.html"] = figure.draw(table).to_html(include_plotlyjs=True)
    tags = {**finished[-1].point.tags, "claim": figure.spec.claim, "held": f"{findings.held.sum()} of {len(findings)}"}
    store.log_summary(figure.name, figure.sweep.name, size, key, artifacts, tags)
