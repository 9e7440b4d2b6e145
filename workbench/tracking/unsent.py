"""A fallback file for computed runs that their store failed to accept, to be imported later."""

import shlex
import tempfile
from contextlib import suppress
from pathlib import Path

from workbench.error_text import text_of
from workbench.tracking.file_store import FileStore
from workbench.tracking.record import Run
from workbench.tracking.store import Store, StoreError
from workbench.tracking.uri import shown_uri


def keep_unsent(run: Run, store: Store, problem: Exception) -> StoreError:
    """Write a run to a file next to its store, and return the error to raise, which says how to import the file.

    Args:
        run: a run that has ended.
        store: store that failed to accept the run.
        problem: the store's error.

    Returns:
        The problem with the name of the file, or with the run's rows if no file can be written.
    """
    for choose_file in (_next_to, _temporary):
        with suppress(OSError, ValueError):  # no space, no permission, or the file is damaged
            file = choose_file(store)
            FileStore(file).add(run)
            return StoreError(f"{text_of(problem)}; the computed point is saved: {_remedy(file, store)}")
    return StoreError(
        f"{text_of(problem)}; the computed point could not be written to a file either, its rows are: {list(run.rows)}"
    )


def _next_to(store: Store) -> Path:
    return store.unsent


def _temporary(store: Store) -> Path:
    return Path(tempfile.mkdtemp(prefix="workbench-")) / store.unsent.name


def _remedy(file: Path, store: Store) -> str:
    command = f"workbench import {shlex.quote(str(file))} --store {shlex.quote(shown_uri(store.location))}"
    return f"once the store works, run `{command}`"
