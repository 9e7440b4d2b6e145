"""Runs in MLflow: one flat run a point, its paper the experiment. The only file that imports MLflow.

Rows and configuration are artifacts and are read back from there; parameters and metrics mirror them for the UI.
"""

import json
import os
import sqlite3
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import yaml

from workbench.datasets.folders import cache_folder
from workbench.files import digest
from workbench.tracking.artifacts import in_a_folder, write_artifacts
from workbench.tracking.checks import check_point, check_summary
from workbench.tracking.connection import Connection, quiet
from workbench.tracking.durations import Durations
from workbench.tracking.mirror import batches, metrics, milliseconds, parameters, plain_rows, shorten
from workbench.tracking.papers import create_experiment, find_experiment
from workbench.tracking.process import HOST, host, is_dead, this_process
from workbench.tracking.reach import reporting, unreachable
from workbench.tracking.reading import CONFIG, ROWS, local_folder, read_runs
from workbench.tracking.record import FAILED, FINISHED, KILLED, RUNNING, DatasetInfo, Point, Row, Run
from workbench.tracking.searching import search_runs
from workbench.tracking.store import NOTHING, Artifacts, database_file, database_uri
from workbench.tracking.tags import ERROR, POINT, SUMMARY, TAG_LENGTH, summary_tags, tags_of
from workbench.tracking.waiting import claimed, locked_soon

# MLflow reads these at every call; what the user has set counts.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing leaves the machine unasked
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # two lines a run, in the midst of a table
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # one for every file
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")  # seconds, not 120: report a lost server within a minute
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # not 7, which take minutes
os.environ.setdefault("MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER", "false")  # a server may ask for hours

from mlflow import MlflowClient, entities
from mlflow.artifacts import download_artifacts
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

_METRICS, _PARAMS = 1000, 100  # the API's limits
_DIGEST = 12  # stands in a narrow column; the whole one is a tag

_reports = reporting((MlflowException, SQLAlchemyError, sqlite3.Error, OSError), unreachable)


class MlflowStore:
    """Runs in a database of MLflow's or on its server; no global state of MLflow's is used or changed.

    Args:
        uri: absolute.
        root: artifacts lie in `mlruns` beside an SQLite database, below this folder for other databases; a server
            decides itself.
    """

    def __init__(self, uri: str, *, root: Path) -> None:
        self.location = uri
        database = database_file(uri)
        folder = database.parent if database else root
        self.unsent = folder / f"{database.stem if database else digest(uri)}.unsent.jsonl"
        self._artifacts = folder / "mlruns"
        self._locks = (self._artifacts if database else cache_folder()) / ".locks" / digest(uri)
        self._connection = Connection(uri, self._locks, connect=_new_client, build=self._build, disconnect=_disconnect)
        self._durations = Durations()

    @_reports
    def check(self) -> None:
        self._connection.check_writable()
        self._client.search_experiments(max_results=1)

    @_reports
    def runs(
        self,
        sweep: str | None = None,
        *,
        size: str | None = None,
        keys: Collection[str] | None = None,
        statuses: Collection[str] = (FINISHED,),
    ) -> list[Run]:
        key = next(iter(keys)) if keys is not None and len(keys) == 1 else None
        found = self._search(sweep and sweep.split("/")[0], kind=POINT, sweep=sweep, size=size, key=key)
        wanted = [
            run for run in found if run.info.status in statuses and (keys is None or run.data.tags.get("key") in keys)
        ]
        return read_runs(wanted, self._download)

    @_reports
    def sweeps(self) -> list[str]:
        return sorted({run.data.tags.get("sweep", "") for run in self._search(None, kind=POINT)} - {""})

    def claim(self, key: str, *, wait: bool = False) -> AbstractContextManager[bool]:
        return claimed(self._locks / digest(key), wait, partial(unreachable, self.location))

    @_reports
    def start(self, point: Point) -> str:
        check_point(point)
        return self._begin(point, time.time())

    @_reports
    def finish(self, run_id: str, rows: Iterable[Row], artifacts: Artifacts = NOTHING) -> None:
        self._keep_rows(run_id, plain_rows(rows), time.time(), artifacts)
        if ERROR in self._client.get_run(run_id).data.tags:  # it was taken for dead meanwhile
            self._client.delete_tag(run_id, ERROR)
        self._end(run_id, FINISHED)

    @_reports
    def fail(self, run_id: str, error: str, status: str = FAILED, artifacts: Artifacts = NOTHING) -> None:
        self._keep_failure(run_id, error, artifacts)
        self._end(run_id, status)

    @_reports
    def close_orphans(self) -> int:
        running = self._search(None, status=RUNNING, **{HOST: host()})
        return sum(self._close_orphan(run) for run in running if is_dead(run.data.tags))

    @_reports
    def add(self, run: Run) -> bool:
        if run.status == RUNNING:
            raise ValueError(f"run {run.run_id} is {RUNNING}; only runs that ended can be added")
        check_point(run.point)
        with locked_soon(self._locks / "add"):
            present = self._search(run.point.paper, status=run.status, kind=POINT, key=run.point.key)
            if any(other.info.start_time == milliseconds(run.started_at) for other in present):
                return False
            run_id = self._begin(run.point, run.started_at)
            if run.status == FINISHED:
                self._keep_rows(run_id, plain_rows(run.rows), run.started_at, NOTHING)
            else:
                self._keep_failure(run_id, run.error or "", NOTHING)
            self._end(run_id, run.status, seconds=run.seconds or 0.0)
            return True

    @_reports
    def log_summary(
        self, figure: str, sweep: str, size: str, key: str, artifacts: Artifacts, tags: Mapping[str, str] = NOTHING
    ) -> str:
        check_summary(figure, sweep, size, key)
        paper = figure.split("/")[0]
        with locked_soon(self._locks / digest(figure, sweep, size, key)):
            of_it = {"figures": figure, "sweep": sweep, "size": size, "key": key}
            if present := self._search(paper, status=FINISHED, kind=SUMMARY, **of_it):
                return present[-1].info.run_id
            about = summary_tags(figure, sweep, size, key, tags) | this_process()
            run_id = self._client.create_run(self._experiment(paper), tags=about).info.run_id
            self._log_artifacts(run_id, artifacts)
            self._end(run_id, FINISHED)
            return run_id

    @property
    def _client(self) -> MlflowClient:
        return self._connection.client()

    def _build(self, draft: Path) -> None:
        with quiet():
            from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

            SqlAlchemyStore(database_uri(draft), self._artifacts.as_uri()).engine.dispose()

    def _close_orphan(self, run: entities.Run) -> bool:
        with self.claim(run.data.tags.get("key", "")) as mine:  # who holds it lives, in a container perhaps
            if mine:
                self.fail(run.info.run_id, "its process ended without a word", status=KILLED)
        return mine

    def _end(self, run_id: str, status: str, seconds: float | None = None) -> None:
        """Mark a run as ended; MLflow takes the machine's time for one of another process."""
        ends_at = self._durations.ends_at(run_id, seconds)
        self._client.set_terminated(run_id, status, None if ends_at is None else milliseconds(ends_at))
        self._connection.check_same()
        self._durations.forget(run_id)

    def _begin(self, point: Point, started_at: float) -> str:
        about = tags_of(point) | this_process()
        run = self._client.create_run(self._experiment(point.paper), start_time=milliseconds(started_at), tags=about)
        run_id = run.info.run_id
        self._durations.begin(run_id, started_at)
        for params in batches([entities.Param(*item) for item in parameters(point.config).items()], _PARAMS):
            self._client.log_batch(run_id, params=params)
        if point.dataset is not None:
            self._client.log_inputs(run_id, [_input(point.dataset)])
        config = yaml.safe_dump(dict(point.config), sort_keys=False, allow_unicode=True)
        self._log_artifacts(run_id, {CONFIG: config})
        return run_id

    def _keep_rows(self, run_id: str, rows: Sequence[Row], now: float, artifacts: Artifacts) -> None:
        found = [entities.Metric(name, value, milliseconds(now), step) for name, value, step in metrics(rows)]
        for batch in batches(found, _METRICS):
            self._client.log_batch(run_id, metrics=batch)
        self._log_artifacts(run_id, {**artifacts, ROWS: json.dumps(rows, ensure_ascii=False, indent=1)})

    def _keep_failure(self, run_id: str, error: str, artifacts: Artifacts) -> None:
        self._client.set_tag(run_id, ERROR, shorten(error, TAG_LENGTH))
        self._log_artifacts(run_id, artifacts)

    def _log_artifacts(self, run_id: str, artifacts: Artifacts) -> None:
        """Down to the disk where they lie on this machine: the database that refers to them is, too."""
        if not artifacts:
            return
        if (folder := local_folder(self._client.get_run(run_id))) is not None:
            write_artifacts(folder, artifacts)
            return
        with in_a_folder(artifacts) as copies:
            self._client.log_artifacts(run_id, copies)

    def _download(self, run: entities.Run, name: str, folder: str) -> None:
        if not any(entry.path == name for entry in self._client.list_artifacts(run.info.run_id)):
            raise FileNotFoundError(name)
        uri = f"{run.info.artifact_uri}/{name}"
        download_artifacts(artifact_uri=uri, dst_path=folder, tracking_uri=self.location)

    def _experiment(self, paper: str) -> str:
        """Its id; the experiment is created if there is none."""
        files = None if self.location.startswith("http") else (self._artifacts / paper).as_uri()
        found = find_experiment(self._client, self.location, paper)
        return found or create_experiment(self._client, self.location, paper, files)

    def _search(self, paper: str | None, **wanted: str | None) -> list[entities.Run]:
        """A database that does not exist is not created for it."""
        return search_runs(self._client, self.location, paper, **wanted) if self._connection.exists() else []


def _new_client(uri: str) -> MlflowClient:
    with quiet():
        if not uri.startswith(("http", "sqlite")):
            from mlflow.store.db.utils import create_sqlalchemy_engine

            create_sqlalchemy_engine(uri).connect().close()  # fails at once; MLflow tries for minutes
        return MlflowClient(uri, registry_uri=uri)


def _disconnect(client: MlflowClient) -> None:
    if (engine := getattr(client._tracking_client.store, "engine", None)) is not None:
        engine.dispose()


def _input(dataset: DatasetInfo) -> entities.DatasetInput:
    profile = json.dumps({"num_nodes": dataset.num_nodes, "num_edges": dataset.num_edges})
    logged = entities.Dataset(dataset.name, dataset.fingerprint[:_DIGEST], "local", dataset.source, profile=profile)
    return entities.DatasetInput(logged, [entities.InputTag("mlflow.data.context", "training")])
