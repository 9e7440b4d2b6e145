"""The file of an SQLite database: created atomically, and checked before MLflow opens it."""

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from workbench.files import write_file
from workbench.tracking.store import StoreError
from workbench.tracking.uri import TRACKING_URI

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
