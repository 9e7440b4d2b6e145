"""A store in MLflow: one flat run per point, one experiment per paper. This is the only file that imports MLflow.

Rows and configuration are artifacts, from which they are read back; parameters and metrics mirror them for the UI.
"""

import json
import logging
import os
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import yaml
from mlflow import MlflowClient, entities
from mlflow.artifacts import download_artifacts
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from workbench.core.errors import CorruptFileError
from workbench.error_text import text_of
from workbench.files import digest
from workbench.paths import cache_folder
from workbench.tracking.mlflow_fields import (
    ERROR,
    POINT,
    SUMMARY,
    TAG_LENGTH,
    batches,
    dataset_of,
    metrics,
    milliseconds,
    parameters,
    plain_rows,
    point_of,
    quoted,
    row_parameters,
    shorten,
    summary_tags,
    tags_of,
)
from workbench.tracking.preflight import (
    check_files,
    check_readable,
    check_writable,
    create_database,
    identity,
    is_new,
    reporting,
    unreachable,
)
from workbench.tracking.process_identity import HOST, host, is_dead, this_process
from workbench.tracking.record import (
    FAILED,
    FINISHED,
    KILLED,
    RUNNING,
    DatasetInfo,
    Point,
    Row,
    Run,
    check_point,
    check_run,
    check_summary,
)
from workbench.tracking.store import NOTHING, Artifacts, StoreError, database_file, database_uri, shown_uri
from workbench.tracking.store_files import in_a_folder, lock_with_timeout, point_lock, write_artifacts


def unset_defaults() -> dict[str, str]:
    """Return the settings whose variables the user has not set."""
    return {name: value for name, value in DEFAULTS.items() if name not in os.environ}


os.environ.update(unset_defaults())  # before the import

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


_CREATION_SECONDS = 50.0  # another process may be creating the database, which takes seconds


class Connection:
    """Creates and opens the store of a URI on first use.

    Args:
        uri: URI of the store.
        locks: folder of the store's locks.
        connect: opens a client for a URI.
        build: creates a complete database in a file.
        disconnect: closes a client's open connections; the client reopens them when it is used again.
    """

    def __init__(
        self,
        uri: str,
        locks: Path,
        *,
        connect: Callable[[str], Any],
        build: Callable[[Path], None],
        disconnect: Callable[[Any], None],
    ) -> None:
        self._uri, self._database, self._lock = uri, database_file(uri), locks / "database"
        self._connect, self._build, self._disconnect = connect, build, disconnect
        self._opened: tuple[Any, Any] | None = None

    def exists(self) -> bool:
        """Return False for a database that has not been created yet."""
        return self._opened is not None or self._database is None or not is_new(self._database)

    def check_writable(self) -> None:
        """Check an SQLite database before MLflow opens it, because MLflow's errors are less clear.

        Raises:
            StoreError: if the database is damaged, locked or not writable.
        """
        if self._database is not None:
            check_writable(self._database)

    def client(self) -> Any:
        """Return the client, creating the database if it does not exist.

        Raises:
            StoreError: if the database is damaged, or was deleted or replaced since it was opened.
        """
        if self._opened is None:
            self._opened = self._open()
        self.check_same()
        return self._opened[0]

    def check_same(self) -> None:
        """Check that the database was not deleted or replaced, since writes to a deleted file are lost silently.

        Raises:
            StoreError: if it was.
        """
        if self._opened is None or self._database is None or identity(self._database) == self._opened[1]:
            return
        self._disconnect(self._opened[0])
        self._opened = None
        raise StoreError(f"{self._database} was deleted or replaced while it was in use; restore it, or start again")

    def _open(self) -> tuple[Any, Any]:
        if self._database is None:
            return self._connect(self._uri), None
        if is_new(self._database):
            with lock_with_timeout(self._lock, _CREATION_SECONDS):
                if is_new(self._database):
                    create_database(self._database, self._build)
        check_readable(self._database)
        client = self._connect(self._uri)
        self._disconnect(client)  # MLflow caches connections per URI, possibly to a file deleted since
        return client, identity(self._database)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress messages of MLflow and urllib3 while a store is opened; a StoreError reports what matters."""
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # otherwise it warns of every retry
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The ``noload`` loader strategy")  # MLflow's models under SQLAlchemy 2.1
        yield


def find_experiment(client: Any, location: str, paper: str) -> str | None:
    """Return the id of a paper's experiment, or None if it does not exist.

    Args:
        client: MLflow client.
        location: URI of the store.
        paper: name of the experiment.

    Raises:
        StoreError: if the experiment was deleted, or its artifacts can't be accessed from this machine.
    """
    experiment = client.get_experiment_by_name(paper)
    if experiment is None:
        return None
    if experiment.lifecycle_stage != "active":
        restore = f"mlflow experiments restore --experiment-id {experiment.experiment_id}"
        raise StoreError(
            f"{shown_uri(location)}: experiment {paper!r} was deleted; restore it with `{restore}`, or delete it "
            "permanently with `mlflow gc`"
        )
    check_files(location, paper, experiment.artifact_location)
    return experiment.experiment_id


def create_experiment(client: Any, location: str, paper: str, files: str | None, title: str = "") -> str:
    """Create a paper's experiment and return its id; another process may be creating it concurrently.

    Args:
        client: MLflow client.
        location: URI of the store.
        paper: name of the experiment.
        files: URI of the artifact folder; None lets the server choose it.
        title: the paper as people cite it, for the description.

    Raises:
        StoreError: if the experiment was deleted, or its artifacts can't be accessed from this machine.
    """
    try:
        return client.create_experiment(paper, artifact_location=files, tags=_about(paper, title))
    except Exception as error:
        if getattr(error, "error_code", None) != "RESOURCE_ALREADY_EXISTS":
            raise
        experiment_id = find_experiment(client, location, paper)
        if experiment_id is None:
            raise
        return experiment_id


def _about(paper: str, title: str) -> dict[str, str]:
    """A description, and the kind that makes MLflow open its pages for models instead of those for language models."""
    return {
        "mlflow.note.content": f"**{title or paper}**, reproduced: one run per grid point, and one per figure with its "
        f'plot, table and verdicts. `tags.sweep = "{paper}/fig11"` selects the points of a figure; `make ui` prints a '
        "link for each. Parameters are the configuration, the file rows.json has the results, metrics mirror them.",
        "mlflow.experimentKind": "custom_model_development",
    }


PAGE = 1000
"""The API's maximum of runs per response."""


def search_runs(
    client: Any, location: str, paper: str | None, *, status: str | None = None, **tags: str | None
) -> list[Any]:
    """Return the runs that have these tags, oldest first.

    Args:
        client: MLflow client.
        location: URI of the store.
        paper: name of the experiment to search; None for all experiments.
        status: status of the runs; None for any status.
        tags: values by name; None for any value.
    """
    if paper is None:
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    else:
        experiments = list(filter(None, [find_experiment(client, location, paper)]))
    terms = [f"tags.`{name}` = {quoted(value)}" for name, value in tags.items() if value is not None]
    terms += [f"attributes.status = '{status}'"] if status else []
    return list(_pages(client, experiments, " and ".join(terms))) if experiments else []


def _pages(client: Any, experiments: list[str], terms: str) -> Iterator[Any]:
    order, token = ["attributes.start_time ASC"], None
    while True:
        page = client.search_runs(experiments, terms, max_results=PAGE, order_by=order, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # send no data without consent
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # two lines per run, in the middle of a table
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",  # one bar per file
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",  # seconds, not 120: report a lost server within a minute
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # instead of 7, which take minutes
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",  # a server may ask for hours
}


class Durations:
    """Start times of the active runs of this process."""

    def __init__(self) -> None:
        self._starts: dict[str, tuple[float, float]] = {}

    def begin(self, run_id: str, started_at: float) -> None:
        """Record that a run starts now.

        Args:
            run_id: id of the run.
            started_at: system time in seconds since 1970.
        """
        self._starts[run_id] = started_at, time.monotonic()

    def ends_at(self, run_id: str, seconds: float | None = None) -> float | None:
        """Return the end of a run, its start plus its duration, in seconds since 1970; None if started elsewhere.

        Args:
            run_id: id of the run.
            seconds: duration in seconds; by default the time since `begin`.
        """
        if run_id not in self._starts:
            return None
        started_at, clock = self._starts[run_id]
        return started_at + (time.monotonic() - clock if seconds is None else seconds)

    def forget(self, run_id: str) -> None:
        """Drop a run that has ended."""
        self._starts.pop(run_id, None)


CONFIG, ROWS = "config.yaml", "rows.json"

Download = Callable[[Any, str, str], None]
"""Downloads an artifact, given a run, the artifact's name and a folder; raises FileNotFoundError if it is missing."""

_NUM_DOWNLOADS = 8

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _DamagedError(Exception):
    """A file of a run is missing or damaged."""


def read_runs(entities: Iterable[Any], download: Download) -> list[Run]:
    """Convert MLflow's runs, ordered by start; runs with missing or damaged rows or tags are skipped with a warning.

    Args:
        entities: runs as MLflow returns them.
        download: function for artifacts that are not on this machine.
    """
    entities = list(entities)
    read = partial(_read, download=download)
    if all(local_folder(entity) for entity in entities):
        runs = [read(entity) for entity in entities]
    else:
        with ThreadPoolExecutor(_NUM_DOWNLOADS) as pool:
            runs = list(pool.map(read, entities))
    return sorted((run for run in runs if run is not None), key=lambda run: run.started_at)


def _read(entity: Any, download: Download) -> Run | None:
    """Convert a run; warn and return None if its point must run again, because a power cut emptied its files, say."""
    try:
        return check_run(_run(entity, download), "the run")
    except _DamagedError as error:
        problem = str(error)
    except (CorruptFileError, KeyError, TypeError) as error:
        problem = f"its tags are not those of a point ({text_of(error)})"
    warnings.warn(
        f"run {entity.info.run_id} is left out, its point runs again: {problem}; delete the run or restore the file",
        stacklevel=2,
    )
    return None


def _run(entity: Any, download: Download) -> Run:
    info, tags, finished = entity.info, entity.data.tags, entity.info.status == FINISHED
    config = _parsed(entity, CONFIG, download, lambda text: yaml.load(text, _LOADER), dict)
    rows = _parsed(entity, ROWS, download, json.loads, list) if finished else []
    inputs = [entry.dataset for entry in (entity.inputs.dataset_inputs if entity.inputs else ())]
    dataset = dataset_of(tags, inputs[0].source, inputs[0].profile) if inputs else None
    return Run(
        point_of(tags, config, dataset),
        info.run_id,
        info.status,
        tuple(rows),
        tags.get(ERROR),
        info.start_time / 1000,
        None if info.end_time is None else max(0.0, (info.end_time - info.start_time) / 1000),
    )


def _parsed(entity: Any, name: str, download: Download, parse: Callable[[str], Any], kind: type) -> Any:
    """Return the parsed contents of an artifact, which may be missing for a run that did not finish."""
    folder = entity.info.artifact_uri
    try:
        if (text := _text(entity, name, download)) is None:
            if entity.info.status != FINISHED:
                return kind()
            raise _DamagedError(f"{name} is missing in {folder}")
        parsed = parse(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise _DamagedError(f"{name} is damaged in {folder} ({' '.join(text_of(error).split())})") from None
    if not isinstance(parsed, kind):
        raise _DamagedError(f"{name} is {'damaged' if text else 'empty'} in {folder}")
    return parsed


def _text(entity: Any, name: str, download: Download) -> str | None:
    """Return an artifact's contents, or None if it does not exist."""
    try:
        if (folder := local_folder(entity)) is not None:
            return (folder / name).read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as copy:
            download(entity, name, copy)
            return (Path(copy) / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def local_folder(entity: Any) -> Path | None:
    """Return the folder of a run's artifacts if it is on this machine; MLflow's access to local files is slow.

    Args:
        entity: a run as MLflow returns it.
    """
    parts = urlsplit(entity.info.artifact_uri)
    return Path(url2pathname(parts.path)) if parts.scheme in ("", "file") else None
