"""`Store`: the protocol of run stores; and their URIs: the default, SQLite files, passwords hidden in messages."""

import importlib.util
import os
import re
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import quote, unquote

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
