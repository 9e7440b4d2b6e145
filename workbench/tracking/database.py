"""The file of an SQLite database: created completely or not at all, and checked before MLflow opens it."""

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from workbench.files import write_file
from workbench.tracking.store import TRACKING_URI, StoreError

ELSEWHERE = f"or set {TRACKING_URI} to another store"

_WAIT_SECONDS = 10.0

Identity = tuple[int, int]
"""Device and number of a file: another file of the same name has another one."""


def is_new(file: Path) -> bool:
    """Whether there is no database yet; an empty file is none."""
    return not file.exists() or file.stat().st_size == 0


def identity(file: Path) -> Identity | None:
    """None if there is no file."""
    try:
        about = file.stat()
    except FileNotFoundError:
        return None
    return about.st_dev, about.st_ino


def create_database(file: Path, build: Callable[[Path], None]) -> None:
    """Create a database elsewhere and move it to its place when it is complete: a kill leaves none, not half of one.

    Args:
        file: that does not exist, or is empty.
        build: creates a complete database in a file and closes it.
    """
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        draft = Path(folder) / file.name
        build(draft)
        write_file(file.resolve(), draft.read_bytes())


def check_writable(file: Path) -> None:
    """Check that a database is intact and can be written.

    Args:
        file: created, empty, if it does not exist.

    Raises:
        StoreError: with the remedy.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("ab").close()
    except OSError as error:
        raise StoreError(f"{file} can't be written ({error.strerror}); make its folder writable, {ELSEWHERE}") from None
    _check(file, "BEGIN IMMEDIATE", "ROLLBACK")  # fails where nothing can be written


def check_readable(file: Path) -> None:
    """Check that a database is intact.

    Raises:
        StoreError: with the remedy.
    """
    _check(file)


def has_no_runs(file: Path) -> bool:
    """Whether a database that cannot be opened by MLflow contains nothing that could be lost."""
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
            found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError as error:
        action = "written" if statements else "read"
        raise StoreError(f"{file} can't be {action} ({error}); end the process that holds it, {ELSEWHERE}") from None
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        raise StoreError(f"{file} is no intact SQLite database ({found}); move it away or restore it, {ELSEWHERE}")


def _connect(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(file, timeout=_WAIT_SECONDS, isolation_level=None)
