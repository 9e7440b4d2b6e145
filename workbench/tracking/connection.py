"""Lazy connection to an MLflow store, which detects that an SQLite file was deleted or replaced."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workbench.tracking.database import check_readable, check_writable, create_database, identity, is_new
from workbench.tracking.locks import lock_with_timeout
from workbench.tracking.store import StoreError
from workbench.tracking.uri import database_file

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
