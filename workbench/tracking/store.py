"""Where runs are kept: what every store does, and which one is meant."""

import importlib.util
import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import quote, unquote

from workbench.tracking.record import FAILED, FINISHED, Point, Row, Run

Artifacts = Mapping[str, str | Path]
"""File name, "/" between folders, to contents or to a file that is copied."""

NOTHING: Mapping[str, Any] = MappingProxyType({})

TRACKING_URI = "MLFLOW_TRACKING_URI"

_PASSWORD = re.compile(r"(\w://[^\s/:@]*:)[^\s/]*@")  # a password may contain "@"
_SECRET = re.compile(r"([?&][\w.-]*(?:password|passwd|pwd|token|secret|key)=)[^\s&]*", re.IGNORECASE)

_PACKAGE = Path(__file__).resolve().parents[1]
_DATABASE = "sqlite:///"


class StoreError(OSError):
    """A store can't be reached, read or written; the message names it and what to do."""


class Store(Protocol):
    """Keeps runs. Several processes may use one at once, and any may be killed at any time.

    Every method raises StoreError, within a minute, if the store cannot be reached, read or written.
    """

    location: str
    """URI, or path of a file. A URI may hold a password: messages name `shown_uri(location)`."""

    unsent: Path
    """File for runs that were computed, but that the store did not accept; see `keep_unsent`."""

    def check(self) -> None:
        """Create the store if it does not exist, and check that it can be reached and written.

        Raises:
            StoreError: it can't; within seconds.
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
        """Runs of points, newest last; None, anywhere: all.

        Only reads: a store that does not exist is not created and has no runs.
        """
        ...

    def sweeps(self) -> list[str]:
        """Names "paper/figure" of all sweeps that have runs, sorted."""
        ...

    def claim(self, key: str, *, wait: bool = False) -> AbstractContextManager[bool]:
        """A lock, so that of several sweeps at once on a store only one runs a point.

            with store.claim(point.key) as mine:
                if mine:
                    ...

        It ends with the process, however that ends. It holds between the processes of a host; two hosts on one server
        may run a point twice: then the newest run counts.
        """
        ...

    def start(self, point: Point) -> str:
        """Begin a run of this process; returns its id.

        Raises:
            ValueError: the point has a key, sweep or size that could not be read back.
        """
        ...

    def finish(self, run_id: str, rows: Iterable[Row], artifacts: Artifacts = NOTHING) -> None:
        """Keep what a run gave, then mark it finished; an error recorded meanwhile is cleared.

        Raises:
            TypeError: a row holds something else than numbers, strings, bools and None.
        """
        ...

    def fail(self, run_id: str, error: str, status: str = FAILED, artifacts: Artifacts = NOTHING) -> None:
        """Mark a run as failed, or as killed."""
        ...

    def close_orphans(self) -> int:
        """Mark as killed what processes of this host were running when they ended; returns how many there were.

        A run whose key is locked is alive, even if its process cannot be seen from here.
        """
        ...

    def add(self, run: Run) -> bool:
        """Keep a run that ended elsewhere, unless it is here already (same key and start); returns whether it was new.

        Raises:
            ValueError: it has not ended.
        """
        ...

    def log_summary(
        self, figure: str, sweep: str, size: str, key: str, artifacts: Artifacts, tags: Mapping[str, str] = NOTHING
    ) -> str:
        """Keep what a figure showed of a sweep: the figure itself, its table, its verdicts.

        Args:
            figure: "paper/figure".
            sweep: "paper/figure" that it shows.
            size: of the sweep.
            key: of what is shown; logged again with the same key, nothing new is kept.
            artifacts: the files.
            tags: for people and for searches.

        Returns:
            The summary's run id.
        """
        ...


def open_store(uri: str | None = None, *, root: Path | None = None) -> Store:
    """The store meant by `uri`, MLFLOW_TRACKING_URI, or neither; nothing is read or made yet.

    Args:
        uri: see `tracking_uri`.
        root: see `tracking_uri`.

    Raises:
        StoreError: a URI that can't be meant, or MLflow is not installed.
    """
    location = tracking_uri(uri, root=root)
    if location.endswith(".jsonl"):
        from workbench.tracking.file_store import FileStore

        return FileStore(location)
    if not _has_mlflow():
        raise StoreError(
            f"{shown_uri(location)}: MLflow is not installed; install it, or name a file that ends in .jsonl"
        )
    from workbench.tracking.mlflow_store import MlflowStore

    return MlflowStore(location, root=root or project_root())


def tracking_uri(uri: str | None = None, *, root: Path | None = None) -> str:
    """Where runs are kept.

    Args:
        uri: "sqlite:////absolute/path.db", "http://host:port", another URI of MLflow, or a file that ends in ".jsonl";
            None: MLFLOW_TRACKING_URI, else `mlflow.db` below `root`, or `runs.jsonl` there without MLflow.
        root: None: the checkout this package is imported from, else the current folder.

    Raises:
        StoreError: a relative database, or a folder: MLflow keeps no runs in folders any more.
    """
    given = uri or os.environ.get(TRACKING_URI)
    shown = shown_uri(given or "")
    if not given:
        folder = (root or project_root()).absolute()
        return database_uri(folder / "mlflow.db") if _has_mlflow() else str(folder / "runs.jsonl")
    if given.endswith(".jsonl"):
        return str(Path(given.removeprefix("file://")).expanduser().absolute())
    if given.startswith("sqlite:") and database_file(given) is None:
        # MLflow would take it from the current folder, which differs between notebooks, terminals and the UI.
        raise StoreError(f"{shown!r} is relative to the current folder; write {_DATABASE}/absolute/path.db (4 slashes)")
    if "://" not in given or given.startswith("file:"):
        raise StoreError(f"{shown!r} is no store: write sqlite:////absolute/path.db, http://host:port or a .jsonl file")
    return given


def shown_uri(text: str) -> str:
    """A URI, or a message that contains URIs, without their passwords and tokens.

    >>> shown_uri("no answer from http://me:secret@host:5000/api?token=abc")
    'no answer from http://me:***@host:5000/api?token=***'
    """
    hidden = _PASSWORD.sub(r"\1***@", text)
    return _SECRET.sub(r"\1***", hidden)


def database_uri(file: Path) -> str:
    """URI of an SQLite database; characters of a URI's own are escaped."""
    return f"{_DATABASE}{quote(str(file))}"


def database_file(uri: str) -> Path | None:
    """File of an SQLite database; None for other URIs, relative ones included."""
    path = Path(unquote(uri.removeprefix(_DATABASE).partition("?")[0]))
    return path if uri.startswith(_DATABASE) and path.is_absolute() else None


def project_root() -> Path:
    """The checkout that this package is imported from, else the current folder."""
    checkout = _PACKAGE.parent
    return checkout if (checkout / "pyproject.toml").exists() and (checkout / "experiments").is_dir() else Path.cwd()


def _has_mlflow() -> bool:
    return importlib.util.find_spec("mlflow") is not None
