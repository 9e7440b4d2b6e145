"""Whether MLflow's store can be reached and written, told quickly and with a remedy."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from workbench.tracking.store import TRACKING_URI, StoreError

_ELSEWHERE = f"or set {TRACKING_URI} to another store"
_OTHER_FILES = "rename it there, so that a new one is made whose files the server takes"
_WAIT_SECONDS = 10.0
_REASON_LENGTH = 200
_QUICKLY = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}


def check_database(file: Path) -> None:
    """See that an SQLite database is whole and can be written, before MLflow opens it and says less clearly what fails.

    Args:
        file: made, empty, if need be.

    Raises:
        StoreError: with the remedy.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("ab").close()
        found = _examine(file)
    except OSError as error:
        raise StoreError(
            f"{file} can't be written ({error.strerror}); make its folder writable, {_ELSEWHERE}"
        ) from None
    except sqlite3.OperationalError as error:
        raise StoreError(f"{file} can't be written ({error}); end the process that holds it, {_ELSEWHERE}") from None
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        raise StoreError(f"{file} is no intact SQLite database ({found}); move it away or restore it, {_ELSEWHERE}")


def _examine(file: Path) -> str:
    with closing(sqlite3.connect(file, timeout=_WAIT_SECONDS, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")  # fails where nothing can be written
        connection.execute("ROLLBACK")
        return str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])


def check_files(location: str, experiment: str, place: str) -> None:
    """See that an experiment's artifacts can be read and written from here.

    Args:
        location: URI of the store.
        experiment: its name.
        place: URI of the folder of its artifacts.

    Raises:
        StoreError: a server keeps them, or they lie on another machine.
    """
    parts, through_server = urlsplit(place), location.startswith("http")
    if parts.scheme == "mlflow-artifacts" and not through_server:
        raise StoreError(f"{location}: a server keeps the files of {experiment!r}; set {TRACKING_URI} to that server")
    if through_server and parts.scheme in ("", "file") and not Path(url2pathname(parts.path)).parent.exists():
        raise StoreError(f"{location}: {experiment!r} keeps its files in {place}, which is not here; {_OTHER_FILES}")


@contextmanager
def impatient() -> Iterator[None]:
    """In the block MLflow gives up on a server after seconds, not minutes, unless the environment says how long."""
    ours = {name: value for name, value in _QUICKLY.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def unreachable(location: str, error: Exception) -> StoreError:
    """What a user can do about an error of MLflow's."""
    reason = " ".join(str(error).split())
    if "out-of-date database schema" in reason:
        remedy = f"it was made by an older MLflow: keep a copy and run `python -m mlflow db upgrade {location}`"
    elif location.startswith("http"):
        remedy = f"start the server, check address and credentials, {_ELSEWHERE}"
    else:
        remedy = f"check the address, {_ELSEWHERE}"
    return StoreError(f"{location} can't be used; {remedy} ({type(error).__name__}: {reason[:_REASON_LENGTH]})")
