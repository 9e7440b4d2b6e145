"""Runs that were computed, but that their store did not accept: kept in a file, to be imported."""

import shlex
import tempfile
from contextlib import suppress
from pathlib import Path

from workbench.tracking.file_store import FileStore
from workbench.tracking.record import Run
from workbench.tracking.store import Store, StoreError, shown_uri


def keep_unsent(run: Run, store: Store, problem: Exception) -> StoreError:
    """Write a run beside its store; the error to raise then says how to import it.

    Args:
        run: that ended.
        store: that refused it.
        problem: why.

    Returns:
        The problem, with the file that the run is in now, or with its rows if no file can be written.
    """
    for create in (_beside, _temporary):
        with suppress(OSError, ValueError):  # no space, no permission; or the file there is damaged
            file = create(store)
            FileStore(file).add(run)
            return StoreError(f"{problem}; the point just computed is kept: {_remedy(file, store)}")
    return StoreError(
        f"{problem}; the point just computed could not be written to any file either, its rows are: {list(run.rows)}"
    )


def _beside(store: Store) -> Path:
    return store.unsent


def _temporary(store: Store) -> Path:
    return Path(tempfile.mkdtemp(prefix="workbench-")) / store.unsent.name


def _remedy(file: Path, store: Store) -> str:
    command = f"workbench import {shlex.quote(str(file))} --store {shlex.quote(shown_uri(store.location))}"
    return f"once the store works, run `{command}`"
