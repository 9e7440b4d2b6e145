"""MLflow's UI: links to its charts, and a local server: `python -m workbench.tracking.ui [--port N] [--store URI]`."""

import argparse
import json
import os
import signal
import socket
import sys
import time
import urllib.request
import webbrowser
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.error import URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from workbench.error_text import text_of
from workbench.processes import KeptProcess
from workbench.tracking.mlflow_fields import VIEW, finished_points
from workbench.tracking.store import StoreError, database_file, query_database, shown_uri, tracking_uri

HOST, PORT = "127.0.0.1", 5000
"""Where `make ui` serves the UI."""

_SWEEPS = """
SELECT sweep.value, runs.experiment_id, size.value, code.value, view.key, MAX(runs.start_time) FROM runs
JOIN experiments ON experiments.experiment_id = runs.experiment_id
JOIN tags AS sweep ON sweep.run_uuid = runs.run_uuid AND sweep.key = 'sweep'
JOIN tags AS kind ON kind.run_uuid = runs.run_uuid AND kind.key = 'kind' AND kind.value = 'point'
LEFT JOIN tags AS size ON size.run_uuid = runs.run_uuid AND size.key = 'size'
LEFT JOIN tags AS code ON code.run_uuid = runs.run_uuid AND code.key = 'mlflow.workbench.code'
LEFT JOIN experiment_tags AS view ON view.experiment_id = runs.experiment_id
    AND view.value LIKE '%' || code.value || '%'
    AND view.key = 'mlflow.sharedViewState.' || substr(sweep.value, instr(sweep.value, '/') + 1) || '-' || size.value
WHERE runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active' AND runs.status = 'FINISHED'
GROUP BY 2, 1 ORDER BY 2, 1
"""
_LAST_RUN = "SELECT experiment_id FROM runs WHERE lifecycle_stage = 'active' ORDER BY start_time DESC LIMIT 1"

_START_SECONDS, _STOP_SECONDS, _RESPONSE_SECONDS, _POLL_SECONDS = 90.0, 10.0, 5.0, 0.3
_EXPERIMENTS = "api/2.0/mlflow/experiments/search?max_results=1000"


@dataclass(frozen=True)
class Ui:
    """The command that serves the UI.

    Args:
        command: program and arguments.
        environment: additional environment variables.
        url: address of the UI.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    url: str


@dataclass(frozen=True)
class Sweep:
    """The latest state of a sweep in a store.

    Args:
        name: "paper/figure".
        experiment_id: id of the MLflow experiment of its paper.
        size: of its newest finished run; None: of any.
        code: digest of the code of that run; None: any.
        view: key of the shared view of its charts (`mlflow_fields.chart_view`); None: there is none.
    """

    name: str
    experiment_id: str
    size: str | None = None
    code: str | None = None
    view: str | None = None


def ui(store_uri: str, port: int) -> Ui:
    """Build the command that serves the UI on the loopback interface.

    Args:
        store_uri: URI of a database, not of a server.
        port: a free port.
    """
    options = {"host": HOST, "port": str(port), "workers": "1", "backend-store-uri": store_uri}
    if (database := database_file(store_uri)) is not None:  # otherwise artifacts would go to the current folder
        options["default-artifact-root"] = (database.parent / "mlruns").as_uri()
    options["uvicorn-opts"] = "--log-level warning"  # otherwise it prints a line per request
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    # Job execution would start idle workers that use 600 MB.
    environment = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    environment["PYTHONWARNINGS"] = "ignore"  # deprecations inside MLflow, above the links that a user looks for
    return Ui(
        (sys.executable, "-m", "mlflow", "ui", *arguments, "--no-serve-artifacts"), environment, f"http://{HOST}:{port}"
    )


def experiment_ids(base: int | str) -> dict[str, str]:
    """Query the experiments of a running server.

    Args:
        base: port on this machine, or address of the server.

    Returns:
        Ids by name.

    Raises:
        OSError: if the server does not respond.
    """
    url = address(base)
    with urllib.request.urlopen(_request(f"{url}/{_EXPERIMENTS}"), timeout=_RESPONSE_SECONDS) as response:
        experiments = json.load(response).get("experiments", [])
    return {experiment["name"]: experiment["experiment_id"] for experiment in experiments}


def _request(url: str) -> urllib.request.Request:
    """Build a request with the URL's user and password as a header; urllib would parse them as part of the host."""
    parts = urlsplit(url)
    if parts.username is None:
        return urllib.request.Request(url)
    account = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    header = {"Authorization": f"Basic {b64encode(account.encode()).decode()}"}
    return urllib.request.Request(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), headers=header)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the UI until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m workbench.tracking.ui", description="Serve MLflow's UI")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--store", metavar="URI", help="default: MLFLOW_TRACKING_URI, or the checkout's mlflow.db")
    parser.add_argument("--open", action="store_true", help="open the first paper's charts in a browser")
    options = parser.parse_args(arguments)
    try:
        store = tracking_uri(options.store)
        if store.endswith(".jsonl"):
            raise StoreError(
                f"{store} is a file; import it with `workbench import {store}` and open that store instead"
            )
        if store.startswith("http"):
            return _show(store, options.open, {})
        _check_free(options.port)
        return _serve(ui(store, options.port), options.open, store)
    except OSError as error:
        sys.stderr.write(f"{shown_uri(text_of(error))}\n")
        return 1


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        if probe.connect_ex((HOST, port)) == 0:
            raise StoreError(f"port {port} is in use; choose another --port")


def _serve(server: Ui, in_browser: bool, store: str) -> int:
    # Shells start background jobs with SIGINT ignored, hence the handlers.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    environment = {**os.environ, **server.environment}
    process = KeptProcess(server.command, environment=environment, stdout=sys.stderr)
    try:
        _wait(server, process)
        _show(server.url, in_browser, sweeps_of(store))
        return process.wait() or 0
    except KeyboardInterrupt:
        return 0
    finally:
        _stop(process)


def _wait(server: Ui, process: KeptProcess) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if (status := process.status) is not None:
            raise StoreError(f"the UI exited with code {status}; see above, or choose another --port")
        try:
            experiment_ids(server.url)
            return
        except (URLError, OSError):
            time.sleep(_POLL_SECONDS)
    raise StoreError(f"the UI did not respond at {server.url} within {_START_SECONDS:.0f} s; try again")


def _show(url: str, in_browser: bool, sweeps: Mapping[str, Sweep]) -> int:
    """Print links to the papers' charts, MLflow's "Default" experiment last, each with those to its figures' runs."""
    experiments = sorted(experiment_ids(url).items(), key=lambda item: (item[0] == "Default", item[0]))
    shown = shown_uri(url)  # not of whole links: their keys of views are no secrets
    for name, experiment_id in experiments:
        sys.stdout.write(f"{name:>14}  {ml_view(shown, experiment_id)}\n")
        for sweep in [sweep for sweep in sweeps.values() if sweep.name.startswith(f"{name}/")]:
            sys.stdout.write(f"{sweep.name.partition('/')[2]:>20}  {runs_view(shown, sweep)}\n")
    sys.stdout.flush()
    if in_browser and experiments:
        webbrowser.open(ml_view(url, experiments[0][1]))
    return 0


def _stop(process: KeptProcess) -> None:
    process.terminate()
    process.wait(_STOP_SECONDS)
    process.kill()


def ml_view(base: int | str, experiment_id: str) -> str:
    """Return the link to an experiment's charts; by default MLflow shows its pages for language models.

    Args:
        base: port on this machine, or address of the UI.
        experiment_id: id of the MLflow experiment.
    """
    return f"{address(base)}/{_charts(experiment_id)}"


def runs_view(base: int | str, sweep: Sweep) -> str:
    """Return the link to the finished runs of one figure, of one size and state of the code, as charts.

    Args:
        base: port on this machine, or address of the UI.
        sweep: whose rows the figure shows.

    >>> unquote(runs_view(5000, Sweep("betty/fig11", "3")).partition("&searchFilter=")[2])
    'tags.sweep = "betty/fig11" and tags.kind = "point" and attributes.status = "FINISHED"'
    """
    if sweep.view is not None:
        return f"{ml_view(base, sweep.experiment_id)}&viewStateShareKey={quote(sweep.view, safe='')}"
    wanted = finished_points(sweep.name, sweep.size, sweep.code)
    return f"{ml_view(base, sweep.experiment_id)}&searchFilter={quote(wanted, safe='')}"


def sweeps_of(store_uri: str) -> dict[str, Sweep]:
    """Return the sweeps that have finished runs in a database on this machine, by name.

    Args:
        store_uri: URI of the store; of one that is no such database, or does not exist, nothing is known.
    """
    found = query_database(store_uri, _SWEEPS)
    return {
        name: Sweep(name, str(experiment), size, code, view and view.removeprefix(VIEW))
        for name, experiment, size, code, view, _ in found
    }


def start_page(store_uri: str) -> str:
    """Return the page to open first, relative to the UI's address: the charts of the latest run's paper.

    Without runs it is the list of experiments.

    Args:
        store_uri: URI of the store; a database that does not exist is not created.
    """
    for (experiment,) in query_database(store_uri, _LAST_RUN):
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


if __name__ == "__main__":
    sys.exit(main())
