"""Runs the points of a sweep that are not done yet, one after the other, and keeps each as soon as it ends."""

import gc
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from workbench.experiment.config import PointConfig
from workbench.tracking.record import FAILED, FINISHED, KILLED, Point, Run
from workbench.tracking.store import Store

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
    tried again when the sweep is next started. Interrupted, the point being run is lost, and no other.

    Args:
        tasks: points in order.
        run: yields the rows of a point.
        store: keeps runs.
        progress: show a bar with the time left on stderr; None: on a terminal.

    Returns:
        One run a task, in their order: the newest finished one, else what failed.
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
    started_at, began = time.time(), time.perf_counter()
    run_id = store.start(task.point)

    def ended(status: str, rows: Sequence[Mapping[str, Any]] = (), error: str | None = None) -> Run:
        return Run(task.point, run_id, status, tuple(rows), error, started_at, time.perf_counter() - began)

    try:
        rows = [dict(row) for row in run(task.config)]
        store.finish(run_id, rows)
        return ended(FINISHED, rows)
    except Exception as error:
        text = _one_line(error)
        store.fail(run_id, text, status=FAILED, artifacts={"traceback.txt": traceback.format_exc()})
    except BaseException as stop:
        store.fail(run_id, f"stopped by {type(stop).__name__}", status=KILLED)
        raise
    _release_memory()  # here, since the error holds what the point had until it is dropped
    return ended(FAILED, error=text)


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _release_memory() -> None:
    """After running out of it, what the failed point left must not fail the next."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _label(tasks: Sequence[Task]) -> str:
    return f"{tasks[0].point.sweep} {tasks[0].point.size}" if tasks else ""
