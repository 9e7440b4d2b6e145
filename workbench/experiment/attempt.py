"""One attempt at a point: started in the store, then finished, failed or killed, without losing what was computed."""

import atexit
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from workbench.core.errors import deferred_interrupt
from workbench.error_text import line_of, stack_of
from workbench.experiment.config import PointConfig
from workbench.tracking.file_store import keep_unsent
from workbench.tracking.record import FAILED, FINISHED, KILLED, Point, Run
from workbench.tracking.store import NOTHING, Artifacts, Store, StoreError


@dataclass(frozen=True)
class Task:
    """A point, and the configuration that its `run` is called with."""

    point: Point
    config: PointConfig


def finished_runs(tasks: Sequence[Task], store: Store) -> dict[str, Run]:
    """The newest finished run of each point that has one, by the point's key."""
    if not tasks:
        return {}
    first = tasks[0].point
    keys = {task.point.key for task in tasks}
    return {run.point.key: run for run in store.runs(first.sweep, size=first.size, keys=keys)}


_open: set["Attempt"] = set()
"""Attempts that have not ended."""


class Attempt:
    """A run of a point that this process has started in a store.

    Args:
        point: to run.
        store: that keeps the run.

    Raises:
        StoreError: the store does not accept it.
    """

    def __init__(self, point: Point, store: Store) -> None:
        self._point, self._store, self._process = point, store, os.getpid()
        self._started_at, self._began = time.time(), time.monotonic()
        with deferred_interrupt():
            self._run_id = store.start(point)
            _open.add(self)

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self._began

    def finish(self, rows: Sequence[Mapping[str, Any]]) -> Run:
        """Store the rows.

        Raises:
            StoreError: the store failed; the message names the file that keeps the rows.
        """
        return self._keep(self._ended(FINISHED, rows))

    def fail(self, error: str, trace: str | None = None) -> Run:
        """Store an error and its stack trace; if that fails, the StoreError names the file that keeps it."""
        artifacts = NOTHING if trace is None else {"traceback.txt": trace}
        return self._keep(self._ended(FAILED, error=error), artifacts)

    def kill(self, reason: str) -> None:
        """Mark the run as killed; a store that fails is ignored, since the user waits for the interruption."""
        if self._is_mine:
            with suppress(StoreError):
                self._store.fail(self._run_id, reason, status=KILLED)
            _open.discard(self)

    def end_with_process(self) -> None:
        """Mark a run that is open when the interpreter ends as killed, and say so."""
        if self._is_mine:
            self.kill("it was open when its process ended")
            said = sys.__stderr__ or sys.stderr  # that of a notebook reaches nobody any more
            said.write(
                f"workbench: a run of {self._point.sweep} was open when the process ended; it is kept as killed, "
                "without rows; end the block of wb.track before\n"
            )
            said.flush()

    @property
    def _is_mine(self) -> bool:
        """Not in a process that was forked from the one that runs the point."""
        return self._process == os.getpid()

    def _ended(self, status: str, rows: Sequence[Mapping[str, Any]] = (), error: str | None = None) -> Run:
        return Run(self._point, self._run_id, status, tuple(rows), error, self._started_at, self.seconds)

    def _keep(self, run: Run, artifacts: Artifacts = NOTHING) -> Run:
        if not self._is_mine:
            return run
        with deferred_interrupt():
            _open.discard(self)
            try:
                if run.status == FINISHED:
                    self._store.finish(run.run_id, run.rows, artifacts)
                else:
                    self._store.fail(run.run_id, run.error or "", run.status, artifacts)
            except Exception as problem:  # of any kind: what was computed must not be lost
                raise keep_unsent(run, self._store, problem) from None
        return run


def _end_all() -> None:
    for attempt in list(_open):
        attempt.end_with_process()


atexit.register(_end_all)


def described(error: BaseException) -> tuple[str, str]:
    """An error that was just caught: in one line, and with its stack."""
    return line_of(error), stack_of(error)
