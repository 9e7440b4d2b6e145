"""A store in MLflow: one flat run per point, one experiment per paper. This is the only file that imports MLflow.

Rows and configuration are artifacts, from which they are read back; parameters and metrics mirror them for the UI.
"""

import json
import logging
import os
import socket
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import psutil
import yaml
from mlflow import MlflowClient, entities
from mlflow.artifacts import download_artifacts
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from workbench.core.errors import CorruptFileError
from workbench.error_text import text_of, truncated
from workbench.files import digest
from workbench.paths import cache_folder
from workbench.tracking.mlflow_fields import (
    ERROR,
    POINT,
    SUMMARY,
    TAG_LENGTH,
    batches,
    chart_view,
    dataset_of,
    drawn_columns,
    metrics,
    milliseconds,
    parameters,
    plain_rows,
    point_of,
    quoted,
    row_parameters,
    summary_tags,
    tags_of,
)
from workbench.tracking.preflight import (
    Identity,
    check_files,
    check_readable,
    check_writable,
    create_database,
    identity,
    is_new,
    reporting,
    unreachable,
)
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
from workbench.tracking.store import (
    NOTHING,
    Artifacts,
    StoreError,
    database_file,
    database_uri,
    lock_with_timeout,
    point_lock,
    shown_uri,
    write_artifacts,
)

_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # send no data without consent
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # two lines per run, in the middle of a table
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",  # one bar per file
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",  # seconds, not 120: report a lost server within a minute
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # instead of 7, which take minutes
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",  # a server may ask for hours
}
"""Settings that MLflow reads from the environment at every call; those of the user stay."""


os.environ.update({name: value for name, value in _DEFAULTS.items() if name not in os.environ})

_CONFIG, _ROWS = "config.yaml", "rows.json"

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NUM_DOWNLOADS = 8

_Download = Callable[[Any, str, str], None]
"""Downloads an artifact, given a run, the artifact's name and a folder; raises FileNotFoundError if it is missing."""

PAGE = 1000
"""The API's maximum of runs per response."""

_CREATION_SECONDS = 50.0  # another process may be creating the database, which takes seconds

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
        self._database = _Database(uri, self._artifacts, self._locks)
        self._started: dict[str, tuple[float, float]] = {}  # runs of this process: system time, monotonic time

    @_reports
    def check(self) -> None:
        self._database.check_writable()
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
        return _read_runs(runs, self._download)

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
            experiment = self._experiment(paper, tags)
            run_id = self._client.create_run(experiment, tags=own).info.run_id
            self._log_artifacts(run_id, artifacts)
            if "code" in tags:  # of points, which a figure's library has not
                self._client.set_experiment_tag(experiment, *chart_view(sweep, size, tags["code"]))
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
        return self._database.client()

    def _close_orphan(self, run: entities.Run) -> bool:
        with self.lock(run.data.tags.get("key", "")) as acquired:  # the holder is alive, perhaps in a container
            if acquired:
                self.fail(run.info.run_id, "its process ended without reporting a result", status=KILLED)
        return acquired

    def _end(self, run_id: str, status: str, seconds: float | None = None) -> None:
        """End a run: its start plus its duration, which a change of the system time does not affect."""
        started_at, clock = self._started.get(run_id, (None, 0.0))
        taken = time.monotonic() - clock if seconds is None else seconds
        self._client.set_terminated(run_id, status, None if started_at is None else milliseconds(started_at + taken))
        self._database.check_same()
        self._started.pop(run_id, None)

    def _begin(self, point: Point, started_at: float) -> str:
        tags = tags_of(point) | this_process()
        experiment, time_ms = self._experiment(point.paper, point.tags), milliseconds(started_at)
        run_id = self._client.create_run(experiment, start_time=time_ms, tags=tags).info.run_id
        self._started[run_id] = started_at, time.monotonic()
        self._log_params(run_id, parameters(point.config))
        if point.dataset is not None:
            self._client.log_inputs(run_id, [_input(point.dataset)])
        config = yaml.safe_dump(dict(point.config), sort_keys=False, allow_unicode=True)
        self._log_artifacts(run_id, {_CONFIG: config})
        return run_id

    def _log_rows(self, run_id: str, rows: Sequence[Row], now: float, artifacts: Artifacts) -> None:
        given = self._client.get_run(run_id).data
        self._log_params(
            run_id, {name: text for name, text in row_parameters(rows).items() if name not in given.params}
        )
        shown = metrics(rows, drawn_columns(given.tags))
        values = [entities.Metric(name, value, milliseconds(now), step) for name, value, step in shown]
        for batch in batches(values, _MAX_METRICS):
            self._client.log_batch(run_id, metrics=batch)
        self._log_artifacts(run_id, {**artifacts, _ROWS: json.dumps(rows, ensure_ascii=False, indent=1)})

    def _log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        for batch in batches([entities.Param(*item) for item in params.items()], _MAX_PARAMS):
            self._client.log_batch(run_id, params=batch)

    def _log_failure(self, run_id: str, error: str, artifacts: Artifacts) -> None:
        self._client.set_tag(run_id, ERROR, truncated(error, TAG_LENGTH))
        self._log_artifacts(run_id, artifacts)

    def _log_artifacts(self, run_id: str, artifacts: Artifacts) -> None:
        """Log artifacts; local ones are synced to disk, as the database that refers to them is."""
        if not artifacts:
            return
        if (folder := _local_folder(self._client.get_run(run_id))) is not None:
            write_artifacts(folder, artifacts)
            return
        with tempfile.TemporaryDirectory() as copies:
            write_artifacts(Path(copies), artifacts)
            self._client.log_artifacts(run_id, copies)

    def _download(self, run: entities.Run, name: str, folder: str) -> None:
        if not any(entry.path == name for entry in self._client.list_artifacts(run.info.run_id)):
            raise FileNotFoundError(name)
        download_artifacts(f"{run.info.artifact_uri}/{name}", dst_path=folder, tracking_uri=self.location)

    def _experiment(self, paper: str, tags: Mapping[str, str]) -> str:
        """Return the id of a paper's experiment, created if necessary, perhaps by another process meanwhile."""
        if found := self._find_experiment(paper):
            return found
        files = None if self.location.startswith("http") else (self._artifacts / paper).as_uri()
        try:
            return self._client.create_experiment(paper, files, _about(paper, tags.get("paper", "")))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS" or (found := self._find_experiment(paper)) is None:
                raise
            return found

    def _find_experiment(self, paper: str) -> str | None:
        """Return the id of a paper's experiment, if it exists; a StoreError says that it was deleted."""
        experiment = self._client.get_experiment_by_name(paper)
        if experiment is None:
            return None
        if experiment.lifecycle_stage != "active":
            restore = f"mlflow experiments restore --experiment-id {experiment.experiment_id}"
            raise StoreError(
                f"{shown_uri(self.location)}: experiment {paper!r} was deleted; restore it with `{restore}`, or delete "
                "it permanently with `mlflow gc`"
            )
        check_files(self.location, paper, experiment.artifact_location)
        return experiment.experiment_id

    def _search(self, paper: str | None, *, status: str | None = None, **tags: str | None) -> list[entities.Run]:
        """Return the runs that have these tags, oldest first, without creating a database that does not exist."""
        if not self._database.exists():
            return []
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
            page = self._client.search_runs(experiments, terms, max_results=PAGE, order_by=order, page_token=token)
            yield from page
            if not (token := page.token):
                return


class _Database:
    """Opens the client of a store on first use; creates an SQLite database, and notices if its file is replaced."""

    def __init__(self, uri: str, artifacts: Path, locks: Path) -> None:
        self._uri, self._artifacts, self._lock = uri, artifacts, locks / "database"
        self._file = database_file(uri)  # None: a server, or a database of another kind
        self._opened: tuple[MlflowClient, Identity | None] | None = None

    def exists(self) -> bool:
        """Return False for a database that has not been created yet."""
        return self._opened is not None or self._file is None or not is_new(self._file)

    def check_writable(self) -> None:
        """Check an SQLite database before MLflow opens it, because MLflow's errors are less clear."""
        if self._file is not None:
            check_writable(self._file)

    def client(self) -> MlflowClient:
        """Return the client, creating the database if it does not exist."""
        if self._opened is None:
            self._opened = self._open()
        self.check_same()
        return self._opened[0]

    def check_same(self) -> None:
        """Raise a StoreError if the database was deleted or replaced: writes to a deleted file are lost silently."""
        if self._opened is None or self._file is None or identity(self._file) == self._opened[1]:
            return
        _disconnect(self._opened[0])
        self._opened = None
        raise StoreError(f"{self._file} was deleted or replaced while it was in use; restore it, or start again")

    def _open(self) -> tuple[MlflowClient, Identity | None]:
        if self._file is None:
            return _new_client(self._uri), None
        if is_new(self._file):
            with lock_with_timeout(self._lock, _CREATION_SECONDS):
                if is_new(self._file):
                    create_database(self._file, self._build)
        check_readable(self._file)
        client = _new_client(self._uri)
        _disconnect(client)  # MLflow caches connections per URI, possibly to a file deleted since
        return client, identity(self._file)

    def _build(self, draft: Path) -> None:
        with _quiet():
            from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

            SqlAlchemyStore(database_uri(draft), self._artifacts.as_uri()).engine.dispose()


def _new_client(uri: str) -> MlflowClient:
    with _quiet():
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


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress messages of MLflow and urllib3 while a store is opened; a StoreError reports what matters."""
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # otherwise it warns of every retry
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The ``noload`` loader strategy")  # MLflow's models under SQLAlchemy 2.1
        yield


def _about(paper: str, title: str) -> dict[str, str]:
    """A description, and the kind that makes MLflow open its pages for models instead of those for language models."""
    return {
        "mlflow.note.content": f"**{title or paper}**, reproduced: one run per grid point, and one per figure with its "
        f'plot, table and verdicts. `tags.sweep = "{paper}/fig11"` selects the points of a figure; `make ui` prints a '
        "link for each. Parameters are the configuration, the file rows.json has the results, metrics mirror them.",
        "mlflow.experimentKind": "custom_model_development",
    }


class _DamagedError(Exception):
    """A file of a run is missing or damaged."""


def _read_runs(entities: Iterable[Any], download: _Download) -> list[Run]:
    """Convert MLflow's runs, ordered by start; runs with missing or damaged rows or tags are skipped with a warning."""
    entities = list(entities)
    read = partial(_read, download=download)
    if all(_local_folder(entity) for entity in entities):
        runs = [read(entity) for entity in entities]
    else:
        with ThreadPoolExecutor(_NUM_DOWNLOADS) as pool:
            runs = list(pool.map(read, entities))
    return sorted((run for run in runs if run is not None), key=lambda run: run.started_at)


def _read(entity: Any, download: _Download) -> Run | None:
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


def _run(entity: Any, download: _Download) -> Run:
    info, tags, finished = entity.info, entity.data.tags, entity.info.status == FINISHED
    config = _parsed(entity, _CONFIG, download, lambda text: yaml.load(text, _LOADER), dict)
    rows = _parsed(entity, _ROWS, download, json.loads, list) if finished else []
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


def _parsed(entity: Any, name: str, download: _Download, parse: Callable[[str], Any], kind: type) -> Any:
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


def _text(entity: Any, name: str, download: _Download) -> str | None:
    """Return an artifact's contents, or None if it does not exist."""
    try:
        if (folder := _local_folder(entity)) is not None:
            return (folder / name).read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as copy:
            download(entity, name, copy)
            return (Path(copy) / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _local_folder(entity: Any) -> Path | None:
    """Return the folder of a run's artifacts if it is on this machine; MLflow's access to local files is slow."""
    parts = urlsplit(entity.info.artifact_uri)
    return Path(url2pathname(parts.path)) if parts.scheme in ("", "file") else None


_PREFIX = "mlflow.workbench_process."  # which MLflow's pages don't show

HOST, PID, STARTED, BOOT = (_PREFIX + each for each in ("host", "pid", "started", "boot"))

_START_FIELD = 19  # starttime in /proc/PID/stat, counted from the field after the name in brackets


def this_process() -> dict[str, str]:
    """Return tags that identify this process."""
    pid = os.getpid()
    return {HOST: host(), PID: str(pid), STARTED: process_started(pid), BOOT: _boot()}


def is_dead(tags: Mapping[str, str]) -> bool:
    """Return whether the process has ended; False for processes of other hosts, of which nothing is known.

    Args:
        tags: the process's tags from `this_process`.
    """
    if tags.get(HOST) != host():
        return False
    if tags.get(BOOT, "") != _boot():
        return True
    try:
        pid = int(tags[PID])
        ended = psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        return ended or process_started(pid) != tags[STARTED]  # a different start time means that the id was reused
    except (KeyError, ValueError, FileNotFoundError, psutil.NoSuchProcess):
        return True
    except (PermissionError, psutil.AccessDenied):
        return False


def process_started(pid: int) -> str:
    """Return the start time of a process: on Linux in clock ticks since boot, which do not depend on the system time.

    Args:
        pid: id of a running process.

    Raises:
        FileNotFoundError: on Linux, if the process does not exist.
        psutil.NoSuchProcess: on other systems, if the process does not exist.
    """
    if not Path("/proc/self/stat").exists():
        return f"{psutil.Process(pid).create_time():.2f}"
    stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return stat.rpartition(")")[2].split()[_START_FIELD]


@cache
def host() -> str:
    """Return the host name of this machine."""
    return socket.gethostname()


@cache
def _boot() -> str:
    """Return the id of the current boot, or "" on systems without one."""
    file = Path("/proc/sys/kernel/random/boot_id")
    return file.read_text().strip() if file.exists() else ""
