"""`Store`: the protocol of run stores, their URIs (passwords hidden in messages), locks and artifacts."""

import importlib.util
import os
import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import quote, unquote

from workbench.files import locked, write_file
from workbench.paths import project_root
from workbench.tracking.record import FAILED, FINISHED, Point, Row, Run

Artifacts = Mapping[str, str | Path]
"""Contents of each artifact, or a file to copy, by file name relative to the run ("/" separates folders)."""

NOTHING: Mapping[str, Any] = MappingProxyType({})


class StoreError(OSError):
    """A store can't be reached, read or written; the message names the store and the remedy."""


class Store(Protocol):
    """Stores runs; safe for several concurrent processes, any of which may be killed at any time.

    Every method raises StoreError within a minute if the store can't be reached, read or written.
    """

    location: str
    """URI of the store, or path of its file. A URI may contain a password, so messages use `shown_uri(location)`."""

    unsent: Path
    """File for computed runs that the store failed to accept, written by `keep_unsent`."""

    def check(self) -> None:
        """Create the store if it does not exist, and check that it can be reached and written.

        Raises:
            StoreError: within seconds, if it can't.
        """
        ...

    def runs(
        self,
        sweep: str | None = None,
        *,
        size: str | None = None,
        keys: Collection[str] | None = None,
        statuses: Collection[str] = (FINISHED,),
    ) -> list[Run]:
        """Return runs of points, oldest first. A store that does not exist has no runs and is not created.

        Args:
            sweep: "paper/figure"; None for all sweeps.
            size: "smoke", "real" or "paper"; None for all sizes.
            keys: keys of points; None for all points.
            statuses: statuses of the runs to return.
        """
        ...

    def sweeps(self) -> list[str]:
        """Return the names "paper/figure" of all sweeps that have runs, sorted."""
        ...

    def lock(self, key: str, *, wait: bool = False) -> AbstractContextManager[bool]:
        """Lock a point, so that concurrent sweeps on one store do not run it twice.

            with store.lock(point.key) as acquired:
                if acquired:
                    ...

        The lock is released when the process ends, in whatever way. It excludes processes of the same host only; if two
        hosts that share a server run a point twice, the newest run counts.

        Args:
            key: key of the point.
            wait: wait until the lock is free; otherwise the block runs immediately and receives False if it is not.
        """
        ...

    def start(self, point: Point) -> str:
        """Start a run of this process and return its id.

        Args:
            point: the point to run.

        Raises:
            ValueError: if the point has an invalid key, sweep or size, which could not be read back.
        """
        ...

    def finish(self, run_id: str, rows: Iterable[Row], artifacts: Artifacts = NOTHING) -> None:
        """Store the results of a run, mark it finished, and clear an error that was recorded meanwhile.

        Args:
            run_id: id returned by `start`.
            rows: the run's rows.
            artifacts: the run's files.

        Raises:
            TypeError: if a row contains anything but numbers, strings, bools and None.
        """
        ...

    def fail(self, run_id: str, error: str, status: str = FAILED, artifacts: Artifacts = NOTHING) -> None:
        """Mark a run as failed or killed.

        Args:
            run_id: id returned by `start`.
            error: one line that says why.
            status: FAILED or KILLED.
            artifacts: the run's files.
        """
        ...

    def close_orphans(self) -> int:
        """Mark runs of this host whose process has ended as killed, and return their number.

        A run whose key is locked is alive, even if its process is not visible from here.
        """
        ...

    def add(self, run: Run) -> bool:
        """Store a run from another store, unless a run with the same key and start exists; return whether it was new.

        Args:
            run: a run that has ended.

        Raises:
            ValueError: if the run has not ended.
        """
        ...

    def log_summary(
        self, figure: str, sweep: str, size: str, key: str, artifacts: Artifacts, tags: Mapping[str, str] = NOTHING
    ) -> str:
        """Store a figure's summary of a sweep: the plot, its table and its verdicts.

        Args:
            figure: "paper/figure" of the figure.
            sweep: "paper/figure" of the sweep that it shows.
            size: size of the sweep.
            key: key of the contents; logging the same key again stores nothing.
            artifacts: the summary's files.
            tags: additional tags for display and search.

        Returns:
            The run id of the summary.
        """
        ...

    def has_summary(self, figure: str, sweep: str, size: str, key: str) -> bool:
        """Check whether `log_summary` has stored a summary under these names; only reads.

        Args:
            figure: "paper/figure".
            sweep: "paper/figure" whose rows it shows.
            size: of the sweep.
            key: sha256 of the figure's state.
        """
        ...


TRACKING_URI = "MLFLOW_TRACKING_URI"

SQLITE = "sqlite:///"

_PASSWORD = re.compile(r"(\w://[^\s/:@]*:)[^\s/]*@")  # a password may contain "@"

_SECRET = re.compile(r"([?&][\w.-]*(?:password|passwd|pwd|token|secret|key)=)[^\s&]*", re.IGNORECASE)


def tracking_uri(uri: str | None = None, *, root: Path | None = None) -> str:
    """Return the absolute location of the store.

    Args:
        uri: "sqlite:////absolute/path.db", "http://host:port", another URI of MLflow, or a file that ends in ".jsonl";
            by default MLFLOW_TRACKING_URI, otherwise `mlflow.db` in `root`, or `runs.jsonl` there without MLflow.
        root: folder of the default store; by default the checkout this package is imported from, otherwise the current
            folder.

    Raises:
        StoreError: if the URI is a relative database path, or a folder, which MLflow no longer supports.
    """
    given = uri or os.environ.get(TRACKING_URI)
    shown = shown_uri(given or "")
    if not given:
        folder = (root or project_root()).absolute()
        return database_uri(folder / "mlflow.db") if has_mlflow() else str(folder / "runs.jsonl")
    if given.endswith(".jsonl"):
        return str(Path(given.removeprefix("file://")).expanduser().absolute())
    if given.startswith("sqlite:") and database_file(given) is None:
        # MLflow would resolve it against the current folder, which differs between notebooks, terminals and the UI.
        raise StoreError(f"{shown!r} is relative to the current folder; write {SQLITE}/absolute/path.db (4 slashes)")
    if "://" not in given or given.startswith("file:"):
        raise StoreError(
            f"{shown!r} is not a store: write sqlite:////absolute/path.db, http://host:port or a .jsonl file"
        )
    return given


def shown_uri(text: str) -> str:
    """Redact passwords and tokens in a URI, or in a message that contains URIs.

    >>> shown_uri("no answer from http://me:secret@host:5000/api?token=abc")
    'no answer from http://me:***@host:5000/api?token=***'
    """
    return _SECRET.sub(r"\1***", _PASSWORD.sub(r"\1***@", text))


def database_uri(file: Path) -> str:
    """Return the URI of an SQLite database, with reserved characters of its path escaped."""
    return f"{SQLITE}{quote(str(file))}"


def database_file(uri: str) -> Path | None:
    """Return the file of an SQLite database; None for other URIs and for relative paths."""
    path = Path(unquote(uri.removeprefix(SQLITE).partition("?")[0]))
    return path if uri.startswith(SQLITE) and path.is_absolute() else None


def query_database(uri: str, query: str) -> list[tuple[Any, ...]]:
    """Query an SQLite database without importing MLflow, which takes seconds.

    Args:
        uri: URI of the store.
        query: SELECT statement.

    Returns:
        Rows; none for other URIs, and for a database that does not exist, which is not created.
    """
    file = database_file(uri)
    with suppress(sqlite3.Error):
        if file is not None and file.is_file():
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
                return database.execute(query).fetchall()
    return []


def has_mlflow() -> bool:
    """Return whether MLflow is installed, without importing it."""
    return importlib.util.find_spec("mlflow") is not None


LOCK_SECONDS = 20.0

_POLL_SECONDS = 0.05


@contextmanager
def lock_with_timeout(file: Path, seconds: float | None = None) -> Iterator[None]:
    """Acquire a lock that processes normally hold only briefly.

    Args:
        file: lock file.
        seconds: timeout; by default `LOCK_SECONDS`.

    Raises:
        StoreError: if another process holds the lock until the timeout.
    """
    limit = LOCK_SECONDS if seconds is None else seconds
    deadline = time.monotonic() + limit
    while True:
        with locked(file, wait=False) as acquired:
            if acquired:
                yield
                return
        if time.monotonic() > deadline:
            raise StoreError(
                f"{file.parent} is locked: another process has held {file.name} for {limit:.0f} s; end it and try again"
            )
        time.sleep(_POLL_SECONDS)


@contextmanager
def point_lock(file: Path, wait: bool, explain: Callable[[OSError], StoreError]) -> Iterator[bool]:
    """Try to lock a point; exceptions of the block propagate even if releasing the lock fails.

    Args:
        file: lock file.
        wait: wait until the lock is free.
        explain: converts an error of the operating system to a StoreError.

    Yields:
        True if the lock was acquired.

    Raises:
        StoreError: if the file can't be created or locked.
    """
    stack = ExitStack()
    try:
        acquired = stack.enter_context(locked(file, wait=wait))
    except OSError as error:
        raise explain(error) from None
    try:
        yield acquired
    finally:
        with suppress(OSError):  # if the folder was deleted, the lock is gone as well
            stack.close()


_CHUNK_BYTES = 1 << 20


def write_artifacts(folder: Path, artifacts: Artifacts) -> None:
    """Write a run's files, each atomically and synced to disk, so that a power cut does not leave empty files.

    Args:
        folder: folder of the run's artifacts.
        artifacts: contents, or files to copy, by name.

    Raises:
        ValueError: if a name points outside the folder; nothing is written then.
    """
    for name in artifacts:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(f"artifact {name!r} would be outside of its run; pass a name relative to the run")
    for name, content in artifacts.items():
        write_file(folder / name, _chunks(content) if isinstance(content, Path) else content.encode(errors="replace"))


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            yield chunk
