"""A store in MLflow: one flat run per point, one experiment per paper. This is the only file that imports MLflow.

Rows and configuration are artifacts, from which they are read back; parameters and metrics mirror them for the UI.
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

from workbench.files import digest
from workbench.paths import cache_folder
from workbench.tracking.artifacts import in_a_folder, write_artifacts
from workbench.tracking.connection import Connection, quiet
from workbench.tracking.durations import Durations
from workbench.tracking.locks import lock_with_timeout, point_lock
from workbench.tracking.mlflow_defaults import unset_defaults
from workbench.tracking.mlflow_experiments import create_experiment, find_experiment
from workbench.tracking.mlflow_fields import batches, milliseconds, parameters, plain_rows, shorten
from workbench.tracking.mlflow_metrics import metrics, row_parameters
from workbench.tracking.mlflow_reader import CONFIG, ROWS, local_folder, read_runs
from workbench.tracking.preflight import reporting, unreachable
from workbench.tracking.process_identity import HOST, host, is_dead, this_process
from workbench.tracking.record import FAILED, FINISHED, KILLED, RUNNING, DatasetInfo, Point, Row, Run
from workbench.tracking.record_checks import check_point, check_summary
from workbench.tracking.searching import search_runs
from workbench.tracking.store import NOTHING, Artifacts
from workbench.tracking.tags import ERROR, POINT, SUMMARY, TAG_LENGTH, summary_tags, tags_of
from workbench.tracking.uri import database_file, database_uri

os.environ.update(unset_defaults())  # before the import

from mlflow import MlflowClient, entities
from mlflow.artifacts import download_artifacts
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

_MAX_METRICS, _MAX_PARAMS = 1000, 100  # the API's limits per call
_DIGEST_LENGTH = 12  # for a narrow column of the UI; a tag has the whole fingerprint

_reports = reporting((MlflowException, SQLAlchemyError, sqlite3.Error, OSError), unreachable)


def _locks_of(uri: str) -> Path:
    """Folder of a store's locks; all links to a database share those next to the database itself."""
    database = database_file(uri)
    if database is None:
        return cache_folder() / ".locks" / digest(uri)
    real = database.resolve()
    return real.parent / "mlruns" / ".locks" / digest(uri if real == database else database_uri(real))


class MlflowStore:
    """Stores runs in MLflow's database or on its server, without using or changing MLflow's global state.

    Args:
        uri: absolute tracking URI.
        root: folder of `mlruns`, the artifacts of databases other than SQLite. Artifacts of an SQLite database are in
            `mlruns` next to it; those of a server are where it chooses.
    """

    def __init__(self, uri: str, *, root: Path) -> None:
        self.location = uri
        database = database_file(uri)
        folder = database.parent if database else root
        self.unsent = folder / f"{database.stem if database else digest(uri)}.unsent.jsonl"
        self._artifacts = folder / "mlruns"
        self._locks = _locks_of(uri)
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
        runs = self._search(sweep and sweep.split("/")[0], kind=POINT, sweep=sweep, size=size, key=key)
        runs = [r for r in runs if r.info.status in statuses and (keys is None or r.data.tags.get("key") in keys)]
        return read_runs(runs, self._download)

    @_reports
    def sweeps(self) -> list[str]:
        return sorted({run.data.tags.get("sweep", "") for run in self._search(None, kind=POINT)} - {""})

    def lock(self, key: str, *, wait: bool = False) -> AbstractContextManager[bool]:
        return point_lock(self._locks / digest(key), wait, partial(unreachable, self.location))

    @_reports
    def start(self, point: Point) -> str:
        check_point(point)
        return self._begin(point, time.time())

    @_reports
    def finish(self, run_id: str, rows: Iterable[Row], artifacts: Artifacts = NOTHING) -> None:
        self._log_rows(run_id, plain_rows(rows), time.time(), artifacts)
        if ERROR in self._client.get_run(run_id).data.tags:  # another process closed it as an orphan
            self._client.delete_tag(run_id, ERROR)
        self._end(run_id, FINISHED)

    @_reports
    def fail(self, run_id: str, error: str, status: str = FAILED, artifacts: Artifacts = NOTHING) -> None:
        self._log_failure(run_id, error, artifacts)
        self._end(run_id, status)

    @_reports
    def close_orphans(self) -> int:
        running = self._search(None, status=RUNNING, **{HOST: host()})
        return sum(self._close_orphan(run) for run in running if is_dead(run.data.tags))

    @_reports
    def add(self, run: Run) -> bool:
        if run.status == RUNNING:
            raise ValueError(f"run {run.run_id} is {RUNNING}; only runs that have ended can be added")
        check_point(run.point)
        with lock_with_timeout(self._locks / "add"):
            present = self._search(run.point.paper, status=run.status, kind=POINT, key=run.point.key)
            if any(other.info.start_time == milliseconds(run.started_at) for other in present):
                return False
            run_id = self._begin(run.point, run.started_at)
            if run.status == FINISHED:
                self._log_rows(run_id, plain_rows(run.rows), run.started_at, NOTHING)
            else:
                self._log_failure(run_id, run.error or "", NOTHING)
            self._end(run_id, run.status, seconds=run.seconds or 0.0)
            return True

    @_reports
    def log_summary(
        self, figure: str, sweep: str, size: str, key: str, artifacts: Artifacts, tags: Mapping[str, str] = NOTHING
    ) -> str:
        check_summary(figure, sweep, size, key)
        paper = figure.split("/")[0]
        with lock_with_timeout(self._locks / digest(figure, sweep, size, key)):
            if present := self._summaries(figure, sweep, size, key):
                return present[-1].info.run_id
            own = summary_tags(figure, sweep, size, key, tags) | this_process()
            run_id = self._client.create_run(self._experiment(paper, tags), tags=own).info.run_id
            self._log_artifacts(run_id, artifacts)
            self._end(run_id, FINISHED)
            return run_id

    @_reports
    def has_summary(self, figure: str, sweep: str, size: str, key: str) -> bool:
        return bool(self._summaries(figure, sweep, size, key))

    def _summaries(self, figure: str, sweep: str, size: str, key: str) -> list[entities.Run]:
        wanted = {"figures": figure, "sweep": sweep, "size": size, "key": key}
        return self._search(figure.split("/")[0], status=FINISHED, kind=SUMMARY, **wanted)

    @property
    def _client(self) -> MlflowClient:
        return self._connection.client()

    def _build(self, draft: Path) -> None:
        with quiet():
            from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

            SqlAlchemyStore(database_uri(draft), self._artifacts.as_uri()).engine.dispose()

    def _close_orphan(self, run: entities.Run) -> bool:
        with self.lock(run.data.tags.get("key", "")) as acquired:  # the holder is alive, perhaps in a container
            if acquired:
                self.fail(run.info.run_id, "its process ended without reporting a result", status=KILLED)
        return acquired

    def _end(self, run_id: str, status: str, seconds: float | None = None) -> None:
        ends_at = self._durations.ends_at(run_id, seconds)
        self._client.set_terminated(run_id, status, None if ends_at is None else milliseconds(ends_at))
        self._connection.check_same()
        self._durations.forget(run_id)

    def _begin(self, point: Point, started_at: float) -> str:
        tags = tags_of(point) | this_process()
        experiment, time_ms = self._experiment(point.paper, point.tags), milliseconds(started_at)
        run_id = self._client.create_run(experiment, start_time=time_ms, tags=tags).info.run_id
        self._durations.begin(run_id, started_at)
        self._log_params(run_id, parameters(point.config))
        if point.dataset is not None:
            self._client.log_inputs(run_id, [_input(point.dataset)])
        config = yaml.safe_dump(dict(point.config), sort_keys=False, allow_unicode=True)
        self._log_artifacts(run_id, {CONFIG: config})
        return run_id

    def _log_rows(self, run_id: str, rows: Sequence[Row], now: float, artifacts: Artifacts) -> None:
        given = self._client.get_run(run_id).data.params
        self._log_params(run_id, {name: text for name, text in row_parameters(rows).items() if name not in given})
        values = [entities.Metric(name, value, milliseconds(now), step) for name, value, step in metrics(rows)]
        for batch in batches(values, _MAX_METRICS):
            self._client.log_batch(run_id, metrics=batch)
        self._log_artifacts(run_id, {**artifacts, ROWS: json.dumps(rows, ensure_ascii=False, indent=1)})

    def _log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        for batch in batches([entities.Param(*item) for item in params.items()], _MAX_PARAMS):
            self._client.log_batch(run_id, params=batch)

    def _log_failure(self, run_id: str, error: str, artifacts: Artifacts) -> None:
        self._client.set_tag(run_id, ERROR, shorten(error, TAG_LENGTH))
        self._log_artifacts(run_id, artifacts)

    def _log_artifacts(self, run_id: str, artifacts: Artifacts) -> None:
        """Log artifacts; local ones are synced to disk, as the database that refers to them is."""
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
        download_artifacts(f"{run.info.artifact_uri}/{name}", dst_path=folder, tracking_uri=self.location)

    def _experiment(self, paper: str, tags: Mapping[str, str]) -> str:
        """Return the id of a paper's experiment, which is created if necessary."""
        files = None if self.location.startswith("http") else (self._artifacts / paper).as_uri()
        found = find_experiment(self._client, self.location, paper)
        return found or create_experiment(self._client, self.location, paper, files, tags.get("paper", ""))

    def _search(self, paper: str | None, **criteria: str | None) -> list[entities.Run]:
        """Search for runs, without creating a database that does not exist."""
        return search_runs(self._client, self.location, paper, **criteria) if self._connection.exists() else []


def _new_client(uri: str) -> MlflowClient:
    with quiet():
        if not uri.startswith(("http", "sqlite")):
            from mlflow.store.db.utils import create_sqlalchemy_engine

            create_sqlalchemy_engine(uri).connect().close()  # fails immediately; MLflow would retry for minutes
        return MlflowClient(uri, registry_uri=uri)


def _disconnect(client: MlflowClient) -> None:
    if (engine := getattr(client._tracking_client.store, "engine", None)) is not None:
        engine.dispose()


def _input(dataset: DatasetInfo) -> entities.DatasetInput:
    profile, digits = {"num_nodes": dataset.num_nodes, "num_edges": dataset.num_edges}, dataset.fingerprint
    logged = entities.Dataset(dataset.name, digits[:_DIGEST_LENGTH], "local", dataset.source, None, json.dumps(profile))
    return entities.DatasetInput(logged, [entities.InputTag("mlflow.data.context", "training")])
