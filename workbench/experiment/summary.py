"""Summaries for the MLflow UI: one run per figure and state of its sweep, with figure, table and findings."""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import pandas as pd

from workbench.experiment.closure import summary_key
from workbench.experiment.experiment import Experiment
from workbench.experiment.table import table_of
from workbench.files import digest
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


_LIBRARY = "plotly.min.mjs"  # MLflow serves .js as plain text, which browsers refuse to run

# MLflow shows the page in a frame whose address is that of the UI after "blob:"; opened from a folder, the page finds
# the library beside its own run's.
_SCRIPT = """
const places = location.protocol === "blob:" || location.protocol === "http:" || location.protocol === "https:"
  ? ["", "/mlflow"].map((base) => new URL(location.href.replace(/^blob:/, "")).origin + base + FROM_SERVER)
  : FROM_FOLDER;
function load(place) {
  const script = document.createElement("script");
  script.src = place;
  script.onload = () => Plotly.newPlot("figure", FIGURE.data, FIGURE.layout, {responsive: true, displaylogo: false});
  script.onerror = () => places.length ? load(places.shift()) : document.getElementById("figure").append(MISSING);
  document.head.append(script);
}
load(places.shift());
"""

_MISSING = "plotly.js was not found; `workbench report` writes a page that has it."


def log_library(paper: str, store: Store) -> str:
    """Stores plotly.js once per paper and version; returns the run id.

    Args:
        paper: name of the paper's folder.
        store: keeps the figures.
    """
    from plotly.offline import get_plotlyjs

    source, name = get_plotlyjs(), f"{paper}/plotly"
    tags = {"claim": "The library that draws the figures of this experiment in a browser."}
    return store.log_summary(name, name, "smoke", digest(_LIBRARY, source), {_LIBRARY: source}, tags)


def tracked_page(figure: Any, library: str) -> str:
    """Returns a page of a few kilobytes that draws a figure.

    Args:
        figure: a plotly Figure.
        library: run id that `log_library` returned.
    """
    texts = {
        "FROM_SERVER": f"/get-artifact?path={_LIBRARY}&run_uuid={library}",
        "FROM_FOLDER": [f"../../{library}/artifacts/{_LIBRARY}", f"../../../../{library}/{_LIBRARY}"],
        "MISSING": _MISSING,
    }
    constants = "".join(f"const {name} = {json.dumps(text)};" for name, text in texts.items())
    data = figure.to_json().replace("<", "\\u003c")
    script = f"{constants}const FIGURE = {data};{_SCRIPT}"
    return f'<!doctype html><meta charset="utf-8"><div id="figure"></div><script>{script}</script>'
