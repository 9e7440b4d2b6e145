"""Runs the points of a sweep that have no finished run yet, and stores each as soon as it ends."""

import gc
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from importlib.util import find_spec
from typing import Any

from tqdm import tqdm

from workbench.experiment.attempt import Attempt, Task, described, finished_runs
from workbench.experiment.parallel import ProcessLimits, run_in_processes
from workbench.tracking.mlflow_fields import plain_rows
from workbench.tracking.record import KILLED, Run
from workbench.tracking.store import Store

RunFunction = Callable[[Any], Iterable[Mapping[str, Any]]]


class WorkBar(tqdm):
    """A bar of several sweeps that counts expected seconds, so that its time left follows from the work.

    Args:
        seconds: expected of all sweeps.
        label: name beside the bar.
    """

    def __init__(self, seconds: float, label: str) -> None:
        self.seconds_per_point = 1.0
        super().__init__(total=seconds, bar_format=_WORK_FORMAT, smoothing=0, **_on_stderr(label))


Progress = bool | WorkBar | None
"""Whether to show a bar; None: on a terminal and in a notebook. Or the bar of several sweeps."""

_WORK_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
_POLL_SECONDS = 0.5
_LINE_SECONDS = 30.0  # between lines of progress where there is no terminal
_SHORT_SECONDS = 5.0  # a notebook shows no bar for less


def run_sweep(
    tasks: Sequence[Task],
    run: RunFunction,
    store: Store,
    *,
    limits: ProcessLimits | None = None,
    progress: Progress = None,
) -> list[Run]:
    """Bring every point to an end, in this process or in others that run the same sweep on the same store.

    A point that was finished before is not run again. One that fails is stored as failed and the others continue; it
    runs again when the sweep is next started. An interruption loses the points that are running, and no others. If the
    store fails, the sweep stops; the point that was just computed is kept in a file that `workbench import` reads.

    Args:
        limits: to run each point in a process of its own; None: one after the other in this process.
        progress: show a bar with the time left on stderr; None: on a terminal and in a notebook; or a bar of several
            sweeps to advance.

    Returns:
        One run per task, in their order: the newest finished one, else the failed one.
    """
    keys = [task.point.key for task in tasks]
    done, work = finished_runs(tasks, store), progress.seconds_per_point if isinstance(progress, WorkBar) else 1
    with _bar(progress, tasks, len(done)) as bar:
        while waiting := _in_order([task for task in tasks if task.point.key not in done], store):
            before = len(done)
            ended = _run_here(waiting, run, store) if limits is None else run_in_processes(waiting, store, limits)
            with closing(ended):
                for one in ended:
                    done[one.point.key] = one
                    bar.update(work)
            if len(done) == before:  # other processes run all points that are left
                time.sleep(_POLL_SECONDS)
    return [done[key] for key in keys]


def new_bar(total: int, *, initial: int = 0, label: str = "", disable: bool | None = None) -> tqdm:
    """A bar: a notebook's own, or on stderr; where there is neither terminal nor notebook a line now and then.

    Args:
        initial: number of points that were done before.
        disable: None: unless on a terminal or in a notebook.
    """
    if "ipykernel" in sys.modules and find_spec("ipywidgets"):
        from tqdm.notebook import tqdm as tqdm_notebook

        own = {"disable": bool(disable), "leave": False, "delay": _SHORT_SECONDS}
        return tqdm_notebook(total=total, initial=initial, desc=label, **own)
    return tqdm(total=total, initial=initial, **_on_stderr(label, disable))


def _on_stderr(label: str, disable: bool | None = None) -> dict[str, Any]:
    """Options of a bar on a terminal, in a notebook without widgets, or in a log."""
    terminal = "ipykernel" in sys.modules or sys.stderr.isatty()
    return {
        "desc": label,
        "leave": not terminal,  # else the table would begin in its line
        "disable": not terminal if disable is None else disable,
        "dynamic_ncols": True,
        "mininterval": 0.1 if terminal else _LINE_SECONDS,
    }


def _bar(progress: Progress, tasks: Sequence[Task], done: int) -> AbstractContextManager[tqdm]:
    """A bar of this sweep, or the one of several, whose total then only counts the points that are left."""
    if isinstance(progress, WorkBar):
        progress.total -= done * progress.seconds_per_point
        progress.set_description(_label(tasks), refresh=True)
        return nullcontext(progress)
    return new_bar(len(tasks), initial=done, label=_label(tasks), disable=None if progress is None else not progress)


def slowest(runs: Iterable[Run], count: int = 10) -> list[Run]:
    """The runs that took longest, slowest first."""
    timed = [run for run in runs if run.seconds is not None]
    return sorted(timed, key=lambda run: -(run.seconds or 0.0))[:count]


def _in_order(waiting: Sequence[Task], store: Store) -> list[Task]:
    """Points that were killed before come last: one that ran out of memory must not keep the others from running."""
    if not waiting:
        return []
    first, keys = waiting[0].point, {task.point.key for task in waiting}
    killed = {run.point.key for run in store.runs(first.sweep, size=first.size, keys=keys, statuses=(KILLED,))}
    return sorted(waiting, key=lambda task: task.point.key in killed)


def _run_here(tasks: Sequence[Task], run: RunFunction, store: Store) -> Generator[Run, None, None]:
    """Points that no other process runs, one after the other."""
    for task in tasks:
        if (one := _claim_and_run(task, run, store)) is not None:
            yield one


def _claim_and_run(task: Task, run: RunFunction, store: Store) -> Run | None:
    """None while another process runs the point."""
    with store.lock(task.point.key) as mine:
        if not mine:
            return None
        by_another = finished_runs([task], store)
        return by_another[task.point.key] if by_another else _run(task, run, store)


def _run(task: Task, run: RunFunction, store: Store) -> Run:
    attempt = Attempt(task.point, store)
    try:
        rows = plain_rows(run(task.config))
    except Exception as error:
        reason, trace = described(error)
    except BaseException as stop:
        attempt.kill(f"stopped by {type(stop).__name__}")
        raise
    else:
        return attempt.finish(rows)
    failed = attempt.fail(reason, trace)
    _release_memory()  # here, because the error references the point's tensors until it is dropped
    return failed


def _release_memory() -> None:
    """After an OOM, free the failed point's memory, which the next point may need."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _label(tasks: Sequence[Task]) -> str:
    return f"{tasks[0].point.sweep} {tasks[0].point.size}" if tasks else ""
