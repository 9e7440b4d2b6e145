"""Runs the points of a sweep that are not done yet, one after the other, and keeps each as soon as it ends."""

import gc
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from workbench.core.interrupts import deferred_interrupt
from workbench.experiment.config import PointConfig
from workbench.tracking.mirror import encodable, plain_rows
from workbench.tracking.record import FAILED, FINISHED, KILLED, Point, Run
from workbench.tracking.store import NOTHING, Artifacts, Store, StoreError
from workbench.tracking.unsent import keep_unsent

RunFunction = Callable[[Any], Iterable[Mapping[str, Any]]]

_POLL_SECONDS = 0.5
_LINE_SECONDS = 30.0  # between lines of progress where there is no terminal


@dataclass(frozen=True)
class Task:
    """A point, and the configuration that its `run` is called with."""

    point: Point
    config: PointConfig


def run_sweep(tasks: Sequence[Task], run: RunFunction, store: Store, *, progress: bool | None = None) -> list[Run]:
    """Bring every point to an end, in this process or in others that run the same sweep on the same store.

    A point that was finished before is not run again. One that fails is kept as failed and the others go on; it is
    tried again when the sweep is next started. Interrupted, the point being run is lost, and no other. If the store
    fails, the sweep stops; the point that was just computed is kept in a file that `workbench import` reads.

    Args:
        tasks: points in order.
        run: yields the rows of a point.
        store: keeps runs.
        progress: show a bar with the time left on stderr; None: on a terminal.

    Returns:
        One run a task, in their order: the newest finished one, else what failed.

    Raises:
        StoreError: the store failed; the message names the file that keeps the point just computed.
    """
    keys = [task.point.key for task in tasks]
    done = _finished(tasks, store)
    terminal = sys.stderr.isatty()
    bar = tqdm(
        total=len(tasks),
        initial=len(done),
        desc=_label(tasks),
        leave=not terminal,  # else the table would begin in its line
        disable=None if progress is None else not progress,
        mininterval=0.1 if terminal else _LINE_SECONDS,
    )
    with bar:
        while waiting := _in_order([task for task in tasks if task.point.key not in done], store):
            ended = len(done)
            for task in waiting:
                if (one := _claim_and_run(task, run, store)) is not None:
                    done[task.point.key] = one
                    bar.update()
            if len(done) == ended:  # all that is left is being run by other processes
                time.sleep(_POLL_SECONDS)
    return [done[key] for key in keys]


def slowest(runs: Iterable[Run], count: int = 10) -> list[Run]:
    """Runs by the time they took, longest first."""
    timed = [run for run in runs if run.seconds is not None]
    return sorted(timed, key=lambda run: -(run.seconds or 0.0))[:count]


def _in_order(waiting: Sequence[Task], store: Store) -> list[Task]:
    """What was killed before comes last: if it ran out of memory, it must not keep the others from running."""
    if not waiting:
        return []
    first, keys = waiting[0].point, {task.point.key for task in waiting}
    killed = {run.point.key for run in store.runs(first.sweep, size=first.size, keys=keys, statuses=(KILLED,))}
    return sorted(waiting, key=lambda task: task.point.key in killed)


def _finished(tasks: Sequence[Task], store: Store) -> dict[str, Run]:
    if not tasks:
        return {}
    first = tasks[0].point
    keys = {task.point.key for task in tasks}
    return {run.point.key: run for run in store.runs(first.sweep, size=first.size, keys=keys)}


def _claim_and_run(task: Task, run: RunFunction, store: Store) -> Run | None:
    """None while another process runs the point."""
    with store.claim(task.point.key) as mine:
        if not mine:
            return None
        by_another = _finished([task], store)
        return by_another[task.point.key] if by_another else _run(task, run, store)


def _run(task: Task, run: RunFunction, store: Store) -> Run:
    started_at, began = time.time(), time.monotonic()
    run_id = store.start(task.point)

    def ended(status: str, rows: Sequence[Mapping[str, Any]] = (), error: str | None = None) -> Run:
        return Run(task.point, run_id, status, tuple(rows), error, started_at, time.monotonic() - began)

    try:
        rows = plain_rows(run(task.config))
    except Exception as error:
        reason, trace = _one_line(error), traceback.format_exc()
    except BaseException as stop:
        with suppress(StoreError):  # the interruption is what the user waits for
            store.fail(run_id, f"stopped by {type(stop).__name__}", status=KILLED)
        raise
    else:
        return _keep(ended(FINISHED, rows), store)
    failed = _keep(ended(FAILED, error=reason), store, {"traceback.txt": trace})
    _release_memory()  # here, since the error holds what the point had until it is dropped
    return failed


def _keep(run: Run, store: Store, artifacts: Artifacts = NOTHING) -> Run:
    """Store a run that ended, or write it to a file if the store fails."""
    with deferred_interrupt():
        try:
            if run.status == FINISHED:
                store.finish(run.run_id, run.rows, artifacts)
            else:
                store.fail(run.run_id, run.error or "", run.status, artifacts)
        except Exception as problem:  # of any kind: what was computed must not be lost
            raise keep_unsent(run, store, problem) from None
    return run


def _one_line(error: Exception) -> str:
    return encodable(f"{type(error).__name__}: {' '.join(str(error).split())}")


def _release_memory() -> None:
    """After running out of it, what the failed point left must not fail the next."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _label(tasks: Sequence[Task]) -> str:
    return f"{tasks[0].point.sweep} {tasks[0].point.size}" if tasks else ""
