"""The client of a store of MLflow's: opened at first use, and for SQLite only while the file stays the same one."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workbench.tracking.database import check_readable, check_writable, create_database, identity, is_new
from workbench.tracking.store import StoreError, database_file
from workbench.tracking.waiting import locked_soon

_CREATION_SECONDS = 50.0  # another process may be creating the database, which takes seconds


class Connection:
    """Creates, opens and watches what a URI names.

    Args:
        uri: of the store.
        locks: folder of its locks.
        connect: opens a client.
        build: creates a complete database in a file.
        disconnect: closes a client's open connections; it opens others when it is used again.
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
        """False for a database that has not been created."""
        return self._opened is not None or self._database is None or not is_new(self._database)

    def check_writable(self) -> None:
        """Check a database before MLflow opens it and says less clearly what is wrong.

        Raises:
            StoreError: it is damaged, locked or cannot be written.
        """
        if self._database is not None:
            check_writable(self._database)

    def client(self) -> Any:
        """The client; a database is created if there is none.

        Raises:
            StoreError: the file is damaged, or it is not the one that was opened.
        """
        if self._opened is None:
            self._opened = self._open()
        self.check_same()
        return self._opened[0]

    def check_same(self) -> None:
        """See that the database was not deleted or replaced: what is written to a deleted file is lost silently.

        Raises:
            StoreError: it was.
        """
        if self._opened is None or self._database is None or identity(self._database) == self._opened[1]:
            return
        self._disconnect(self._opened[0])
        self._opened = None
        raise StoreError(f"{self._database} was deleted or replaced while it was in use; restore it, or start anew")

    def _open(self) -> tuple[Any, Any]:
        if self._database is None:
            return self._connect(self._uri), None
        if is_new(self._database):
            with locked_soon(self._lock, _CREATION_SECONDS):
                if is_new(self._database):
                    create_database(self._database, self._build)
        check_readable(self._database)
        client = self._connect(self._uri)
        self._disconnect(client)  # MLflow keeps connections for each URI, perhaps to a file that was deleted since
        return client, identity(self._database)


@contextmanager
def quiet() -> Iterator[None]:
    """Open a store without messages beside that of a StoreError, and none about the tables that are created."""
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # else one for every retry
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The ``noload`` loader strategy")  # MLflow's models under SQLAlchemy 2.1
        yield
