"""Checks of an SQLite database before MLflow opens it, and MLflow's errors in one line: store, reason and remedy."""

import re
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from workbench.error_text import text_of
from workbench.files import write_file
from workbench.tracking.store import TRACKING_URI, StoreError, database_file, shown_uri

_RENAME = "rename the experiment on the server, so that a new one is created whose files the server stores"
_RAW_CHARS = 100_000  # of an error, with the statement that failed
_REASON_HEAD, _REASON_TAIL = 120, 200  # characters; the cause comes last
_NOISE = re.compile(r"\(raised as a result of [^)]*\)")  # SQLAlchemy's advice to authors of queries
_REMEDIES = {  # remedy by text in the reason
    "is locked": "end the process that holds it",
    "is full": "free space there",
    "No space left": "free space there",
    "Disk quota": "free space there",
    "readonly": "make it and its folder writable",
    "Read-only": "make it and its folder writable",
    "Permission": "make it and its folder writable",
}

_F = TypeVar("_F", bound=Callable[..., Any])


def reporting(errors: tuple[type[Exception], ...], explain: Callable[[str, Any], StoreError]) -> Callable[[_F], _F]:
    """Create a decorator for methods of a store that converts errors to one-line StoreErrors.

    Args:
        errors: exceptions that mean that the store failed; all others propagate to the caller.
        explain: builds the StoreError from the store's location and the exception.
    """

    def decorate(method: _F) -> _F:
        @wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return method(self, *args, **kwargs)
            except StoreError:
                raise
            except errors as error:
                raise explain(self.location, error) from None

        return cast(_F, call)

    return decorate


def check_files(location: str, experiment: str, folder: str) -> None:
    """Check that an experiment's artifacts can be accessed from this machine.

    Args:
        location: URI of the store.
        experiment: name of the experiment.
        folder: URI of the folder of its artifacts.

    Raises:
        StoreError: if only a server can access the artifacts, or they are on another machine.
    """
    parts, through_server, shown = urlsplit(folder), location.startswith("http"), shown_uri(location)
    if parts.scheme == "mlflow-artifacts" and not through_server:
        raise StoreError(f"{shown}: a server stores the files of {experiment!r}; set {TRACKING_URI} to that server")
    if through_server and parts.scheme in ("", "file") and not Path(url2pathname(parts.path)).parent.exists():
        raise StoreError(
            f"{shown}: the files of {experiment!r} are in {folder}, which is not on this machine; {_RENAME}"
        )


def unreachable(location: str, error: Exception) -> StoreError:
    """Explain an error of MLflow, its database, its server or its files, with the remedy.

    Args:
        location: URI of the store.
        error: the exception.

    Returns:
        The error to raise.
    """
    text = " ".join(_NOISE.sub("", text_of(error, _RAW_CHARS).partition("[SQL:")[0]).split())
    reason = _shorten(shown_uri(text))
    remedy = _remedy(location, reason)
    return StoreError(f"{shown_uri(location)} can't be used; {remedy} ({type(error).__name__}: {reason})")


def _shorten(text: str) -> str:
    fits = len(text) <= _REASON_HEAD + _REASON_TAIL
    return text if fits else f"{text[:_REASON_HEAD]} … {text[-_REASON_TAIL:]}"


def _remedy(location: str, reason: str) -> str:
    file, shown = database_file(location), shown_uri(location)
    if "out-of-date database schema" in reason:
        return f"it was created by an older MLflow: make a copy and run `python -m mlflow db upgrade {shown}`"
    if known := next((remedy for words, remedy in _REMEDIES.items() if words in reason), None):
        return f"{known}, {ELSEWHERE}"
    if location.startswith("http"):
        return f"start the server, check address and credentials, {ELSEWHERE}"
    if file is not None and file.exists() and has_no_runs(file):
        return f"it is incomplete and contains no runs: move {file} away, and a new one is created"
    return f"check the address, {ELSEWHERE}"


ELSEWHERE = f"or set {TRACKING_URI} to another store"

_WAIT_SECONDS = 10.0

Identity = tuple[int, int]
"""Device and inode of a file, which differ for another file of the same name."""


def is_new(file: Path) -> bool:
    """Return whether the database does not exist yet; an empty file does not count as one."""
    return not file.exists() or file.stat().st_size == 0


def identity(file: Path) -> Identity | None:
    """Return the identity of a file, None if it does not exist."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def create_database(file: Path, build: Callable[[Path], None]) -> None:
    """Create a database atomically: build it in a temporary folder, then move it into place.

    Args:
        file: file to create; it does not exist or is empty.
        build: creates a complete database in a file and closes it.
    """
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        draft = Path(folder) / file.name
        build(draft)
        write_file(file.resolve(), draft.read_bytes())


def check_writable(file: Path) -> None:
    """Check that a database is intact and writable.

    Args:
        file: file of the database; an empty one is created if it does not exist.

    Raises:
        StoreError: if it is damaged, locked or not writable.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("ab").close()
    except OSError as error:
        raise StoreError(f"{file} can't be written ({error.strerror}); make its folder writable, {ELSEWHERE}") from None
    _check(file, "BEGIN IMMEDIATE", "ROLLBACK")  # fails if nothing can be written


def check_readable(file: Path) -> None:
    """Check that a database is intact.

    Raises:
        StoreError: if it is damaged or locked.
    """
    _check(file)


def has_no_runs(file: Path) -> bool:
    """Return whether a database, which MLflow could not open, contains no runs that could be lost."""
    try:
        with closing(_connect(file)) as connection:
            return connection.execute("SELECT count(*) FROM runs").fetchone()[0] == 0
    except sqlite3.OperationalError as error:
        return "no such table" in str(error)


def _check(file: Path, *statements: str) -> None:
    try:
        with closing(_connect(file)) as connection:
            for statement in statements:
                connection.execute(statement)
            result = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError as error:
        action = "written" if statements else "read"
        raise StoreError(f"{file} can't be {action} ({error}); end the process that holds it, {ELSEWHERE}") from None
    except sqlite3.DatabaseError as error:
        result = str(error)
    if result != "ok":
        raise StoreError(f"{file} is not an intact SQLite database ({result}); move it away or restore it, {ELSEWHERE}")


def _connect(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(file, timeout=_WAIT_SECONDS, isolation_level=None)
