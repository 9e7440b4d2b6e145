"""Links into MLflow's UI: charts of a paper, runs of a figure; and which experiments a database has."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from urllib.parse import quote

from workbench.tracking.uri import database_file

HOST, PORT = "127.0.0.1", 5000
"""Where `make ui` serves the UI."""

_SWEEPS = """
SELECT DISTINCT experiments.experiment_id, sweep.value FROM runs
JOIN experiments ON experiments.experiment_id = runs.experiment_id
JOIN tags AS sweep ON sweep.run_uuid = runs.run_uuid AND sweep.key = 'sweep'
JOIN tags AS kind ON kind.run_uuid = runs.run_uuid AND kind.key = 'kind' AND kind.value = 'point'
WHERE runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active' ORDER BY 1, 2
"""
_LAST_RUN = "SELECT experiment_id FROM runs WHERE lifecycle_stage = 'active' ORDER BY start_time DESC LIMIT 1"


def ml_view(base: int | str, experiment_id: str) -> str:
    """Return the link to an experiment's charts; by default MLflow shows its pages for language models.

    Args:
        base: port on this machine, or address of the UI.
        experiment_id: id of the MLflow experiment.
    """
    return f"{address(base)}/{_charts(experiment_id)}"


def runs_view(base: int | str, experiment_id: str, sweep: str) -> str:
    """Return the link to the runs of one figure: the points of the sweep whose rows it shows, as charts.

    Args:
        base: port on this machine, or address of the UI.
        experiment_id: id of the MLflow experiment of its paper.
        sweep: "paper/figure".

    >>> runs_view(5000, "3", "betty/fig11").partition("&searchFilter=")[2]
    'tags.sweep%20%3D%20%22betty%2Ffig11%22%20and%20tags.kind%20%3D%20%22point%22'
    """
    wanted = f'tags.sweep = "{sweep}" and tags.kind = "point"'
    return f"{ml_view(base, experiment_id)}&searchFilter={quote(wanted, safe='')}"


def sweeps_of(store_uri: str) -> dict[str, str]:
    """Return the sweeps that have runs in a database on this machine, to the id of their experiment.

    Args:
        store_uri: URI of the store; of one that is no such database, or does not exist, nothing is known.
    """
    return {sweep: str(experiment) for experiment, sweep in _query(store_uri, _SWEEPS)}


def start_page(store_uri: str) -> str:
    """Return the page to open first, relative to the UI's address: the charts of the latest run's paper.

    Without runs it is the list of experiments.

    Args:
        store_uri: URI of the store; a database that does not exist is not created.
    """
    for (experiment,) in _query(store_uri, _LAST_RUN):
        return _charts(str(experiment))
    return "#/experiments?workflowType=machine_learning"


def address(base: int | str) -> str:
    """Return the address of the UI without a slash at its end.

    Args:
        base: port on this machine, or address of the UI.
    """
    return f"http://{HOST}:{base}" if isinstance(base, int) else base.rstrip("/")


def _charts(experiment_id: str) -> str:
    return f"#/experiments/{experiment_id}/runs?workflowType=machine_learning&compareRunsMode=CHART"


def _query(store_uri: str, query: str) -> Iterable[tuple]:
    file = database_file(store_uri)
    with suppress(sqlite3.Error):
        if file is not None and file.is_file():
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
                return database.execute(query).fetchall()
    return []
