"""Runs in MLflow: one flat run a point, its paper the experiment. The only file that imports MLflow.

Rows and configuration are artifacts and are read back from there; parameters and metrics mirror them for the UI.
"""

import json
import logging
import os
import time
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from workbench.datasets.folders import cache_folder
from workbench.tracking.artifacts import in_a_folder
from workbench.tracking.locks import locked
from workbench.tracking.mirror import metrics, parameters, plain_rows, shorten
from workbench.tracking.process import HOST, host, is_dead, this_process
from workbench.tracking.reach import check_database, check_files, impatient, unreachable
from workbench.tracking.reading import CONFIG, ROWS, read_runs
from workbench.tracking.record import FAILED, FINISHED, KILLED, RUNNING, DatasetInfo, Point, Row, Run
from workbench.tracking.store import NOTHING, Artifacts, StoreError, database_file
from workbench.tracking.tags import ERROR, POINT, SUMMARY, TAG_LENGTH, quoted, summary_tags, tags_of

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing leaves the machine unasked
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # two lines a run, in the midst of a table
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # one for every file

from mlflow import MlflowClient, entities
from mlflow.artifacts import download_artifacts
from mlflow.exceptions import MlflowException

_PAGE, _METRICS, _PARAMS = 1000, 1000, 100  # the API's limits
_DIGEST = 12  # stands in a narrow column; the whole one is a tag


class MlflowStore:
    """Runs in a database of MLflow's or on its server; no global state of MLflow's is used or changed.

    Args:
        uri: absolute.
        root: artifacts lie in `mlruns` beside an SQLite database, below this folder for other databases; a server
            decides itself.
    """

    def __init__(self, uri: str, *, root: Path) -> None:
        self.location = uri
        self._database = database_file(uri)
        self._artifacts = (self._database.parent if self._database else root) / "mlruns"
        self._locks = (self._artifacts if self._database else cache_folder()) / ".locks" / _digest(uri)
        self._experiments: dict[str, str] = {}

    def check(self) -> None:
        try:
            with impatient():
                self._client.search_experiments(max_results=1)
        except StoreError:
            raise
        except Exception as error:
            raise unreachable(self.location, error) from None

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
            run for run in found if run.info.status in statuses and (keys is None or run.data.tags["key"] in keys)
        ]
        return read_runs(wanted, self._download)

    def sweeps(self) -> list[str]:
        return sorted({run.data.tags["sweep"] for run in self._search(None, kind=POINT)})

    def claim(self, key: str, *, wait: bool = False) -> AbstractContextManager[bool]:
        return locked(self._locks / key, wait=wait)

    def start(self, point: Point) -> str:
        return self._begin(point, time.time())

    def finish(self, run_id: str, rows: Iterable[Row], artifacts: Artifacts = NOTHING) -> None:
        self._keep_rows(run_id, plain_rows(rows), time.time(), artifacts)
        self._client.set_terminated(run_id, FINISHED)

    def fail(self, run_id: str, error: str, status: str = FAILED, artifacts: Artifacts = NOTHING) -> None:
        self._keep_failure(run_id, error, artifacts)
        self._client.set_terminated(run_id, status)

    def close_orphans(self) -> int:
        running = self._search(None, status=RUNNING, **{HOST: host()})
        dead = [run.info.run_id for run in running if is_dead(run.data.tags)]
        for run_id in dead:
            self.fail(run_id, "its process ended without a word", status=KILLED)
        return len(dead)

    def add(self, run: Run) -> bool:
        if run.status == RUNNING:
            raise ValueError(f"run {run.run_id} is {RUNNING}; only runs that ended can be added")
        with self.claim(run.point.key, wait=True):
            present = self._search(run.point.paper, status=run.status, kind=POINT, key=run.point.key)
            if any(other.info.start_time == _milliseconds(run.started_at) for other in present):
                return False
            run_id = self._begin(run.point, run.started_at)
            if run.status == FINISHED:
                self._keep_rows(run_id, plain_rows(run.rows), run.started_at, NOTHING)
            else:
                self._keep_failure(run_id, run.error or "", NOTHING)
            self._client.set_terminated(run_id, run.status, _milliseconds(run.started_at + (run.seconds or 0.0)))
            return True

    def log_summary(
        self, figure: str, sweep: str, size: str, key: str, artifacts: Artifacts, tags: Mapping[str, str] = NOTHING
    ) -> str:
        paper = figure.split("/")[0]
        with self.claim(_digest(f"{figure} {sweep} {size} {key}"), wait=True):
            of_it = {"figures": figure, "sweep": sweep, "size": size, "key": key}
            if present := self._search(paper, status=FINISHED, kind=SUMMARY, **of_it):
                return present[-1].info.run_id
            about = summary_tags(figure, sweep, size, key, tags) | this_process()
            run_id = self._client.create_run(self._experiment(paper), tags=about).info.run_id
            self._log_artifacts(run_id, artifacts)
            self._client.set_terminated(run_id, FINISHED)
            return run_id

    @cached_property
    def _client(self) -> MlflowClient:
        if self._database is None:
            return _new_client(self.location)
        check_database(self._database)
        # Of two processes that make the tables of one new database at once, one may die.
        with locked(self._locks / "database"):
            return _new_client(self.location)

    def _begin(self, point: Point, started_at: float) -> str:
        about = tags_of(point) | this_process()
        run = self._client.create_run(self._experiment(point.paper), start_time=_milliseconds(started_at), tags=about)
        run_id = run.info.run_id
        for params in _batches([entities.Param(*item) for item in parameters(point.config).items()], _PARAMS):
            self._client.log_batch(run_id, params=params)
        if point.dataset is not None:
            self._client.log_inputs(run_id, [_input(point.dataset)])
        config = yaml.safe_dump(dict(point.config), sort_keys=False, allow_unicode=True)
        self._log_artifacts(run_id, {CONFIG: config})
        return run_id

    def _keep_rows(self, run_id: str, rows: Sequence[Row], now: float, artifacts: Artifacts) -> None:
        found = [entities.Metric(name, value, _milliseconds(now), step) for name, value, step in metrics(rows)]
        for batch in _batches(found, _METRICS):
            self._client.log_batch(run_id, metrics=batch)
        self._log_artifacts(run_id, {**artifacts, ROWS: json.dumps(rows, ensure_ascii=False, indent=1)})

    def _keep_failure(self, run_id: str, error: str, artifacts: Artifacts) -> None:
        self._client.set_tag(run_id, ERROR, shorten(error, TAG_LENGTH))
        self._log_artifacts(run_id, artifacts)

    def _log_artifacts(self, run_id: str, artifacts: Artifacts) -> None:
        with in_a_folder(artifacts) as folder:
            self._client.log_artifacts(run_id, folder)

    def _download(self, run: entities.Run, name: str, folder: str) -> None:
        uri = f"{run.info.artifact_uri}/{name}"
        try:
            download_artifacts(artifact_uri=uri, dst_path=folder, tracking_uri=self.location)
        except MlflowException:
            if any(entry.path == name for entry in self._client.list_artifacts(run.info.run_id)):
                raise
            raise FileNotFoundError(uri) from None

    def _experiment(self, paper: str) -> str:
        """Its id; made if need be."""
        if paper not in self._experiments:
            self._experiments[paper] = self._find_experiment(paper) or self._make_experiment(paper)
        return self._experiments[paper]

    def _find_experiment(self, paper: str) -> str | None:
        found = self._client.get_experiment_by_name(paper)
        if found is not None and found.lifecycle_stage != entities.LifecycleStage.ACTIVE:
            restore = f"mlflow experiments restore --experiment-id {found.experiment_id}"
            raise StoreError(f"{self.location}: experiment {paper!r} was deleted; `{restore}`, or `mlflow gc` for good")
        if found is None:
            return None
        check_files(self.location, paper, found.artifact_location)
        return found.experiment_id

    def _make_experiment(self, paper: str) -> str:
        place = None if self.location.startswith("http") else (self._artifacts / paper).as_uri()
        try:
            return self._client.create_experiment(paper, artifact_location=place)
        except MlflowException:
            by_another = self._find_experiment(paper)
            if by_another is None:
                raise
            return by_another

    def _search(self, paper: str | None, *, status: str | None = None, **tags: str | None) -> list[entities.Run]:
        """Runs of one experiment, or of all, that have these tags."""
        if paper is None:
            experiments = [experiment.experiment_id for experiment in self._client.search_experiments()]
        else:
            experiments = list(filter(None, [self._find_experiment(paper)]))
        terms = [f"tags.`{name}` = {quoted(value)}" for name, value in tags.items() if value is not None]
        terms += [f"attributes.status = '{status}'"] if status else []
        return list(self._pages(experiments, " and ".join(terms))) if experiments else []

    def _pages(self, experiments: list[str], terms: str) -> Iterator[entities.Run]:
        order, token = ["attributes.start_time ASC"], None
        while True:
            page = self._client.search_runs(experiments, terms, max_results=_PAGE, order_by=order, page_token=token)
            yield from page
            token = page.token
            if not token:
                return


def _new_client(uri: str) -> MlflowClient:
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # else it tells of tables it makes
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The ``noload`` loader strategy")  # MLflow's models under SQLAlchemy 2.1
        return MlflowClient(uri, registry_uri=uri)


def _batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[first : first + size] for first in range(0, len(items), size))


def _input(dataset: DatasetInfo) -> entities.DatasetInput:
    profile = json.dumps({"num_nodes": dataset.num_nodes, "num_edges": dataset.num_edges})
    logged = entities.Dataset(dataset.name, dataset.fingerprint[:_DIGEST], "local", dataset.source, profile=profile)
    return entities.DatasetInput(logged, [entities.InputTag("mlflow.data.context", "training")])


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))  # MLflow takes 0 for now


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
