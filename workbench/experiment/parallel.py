"""Runs points in processes of their own, here or on a Ray cluster; this process alone writes the store."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, Protocol, get_args

from workbench.core.errors import check_choice, complete_despite_interrupt, deferred_interrupt
from workbench.error_text import text_of
from workbench.experiment.attempt import Attempt, Task, finished_runs
from workbench.experiment.closure import READ_AT
from workbench.experiment.point_process import Order, Outcome, PointProcess
from workbench.kernels.threads import get_num_threads
from workbench.tracking.record import Run
from workbench.tracking.store import Store

Executor = Literal["processes", "ray"]

EXECUTORS: tuple[str, ...] = get_args(Executor)

_POLL_SECONDS = 0.05


class RunningPoint(Protocol):
    """A point that an executor has started."""

    def has_ended(self) -> bool:
        """The outcome is there, or there will be none."""
        ...

    def outcome(self, seconds: float) -> Outcome:
        """How the point ended, once it has."""
        ...

    def kill(self) -> None:
        """End the point at once; nothing if it has ended."""
        ...


@dataclass(frozen=True)
class ProcessLimits:
    """How points may use the machine.

    Args:
        jobs: points that run at a time, at least 1; they share the cores.
        time_limit_seconds: after which a point is stopped, from the start of its process or, of a cluster, from when it
            was handed over: it may wait there for CPUs that others use; None: never.
        executor: "processes" of this machine, or workers of a "ray" cluster that share its file system.
    """

    jobs: int = 1
    time_limit_seconds: float | None = None
    executor: Executor = "processes"

    def __post_init__(self) -> None:
        check_choice("executor", self.executor, EXECUTORS)
        if self.jobs < 1:
            raise ValueError(f"jobs is {self.jobs}; it must be at least 1")
        if self.time_limit_seconds is not None and not self.time_limit_seconds > 0:
            raise ValueError(f"time_limit_seconds is {self.time_limit_seconds:g}; it must be above 0")

    def threads(self, available: int) -> int:
        """Threads of one point, out of those that are available to all."""
        return max(1, available // self.jobs)

    def kernel_threads(self) -> int:
        """Threads of one point's kernels, out of those of this process or of the cluster."""
        if self.executor == "ray":
            return self.threads(cluster_cpus())
        return self.threads(get_num_threads())

    def tagged(self, task: Task) -> Task:
        """The task, tagged if it shares the machine: seconds that are measured beside other points are longer."""
        if self.jobs == 1 and self.executor == "processes":
            return task
        about = {"jobs": str(self.jobs), "threads": str(self.kernel_threads()), "executor": self.executor}
        return replace(task, point=replace(task.point, tags={**task.point.tags, **about}))


def process_limits(
    jobs: int, time_limit_seconds: float | None, in_subprocess: bool | None, executor: Executor = "processes"
) -> ProcessLimits | None:
    """How points use processes; None: they run in this one.

    Raises:
        ValueError: several jobs, a time limit or Ray, but no subprocesses; an unknown executor; jobs below 1; a limit
            that is not above 0.
        RuntimeError: Ray is not installed.
    """
    limits = ProcessLimits(jobs, time_limit_seconds, executor)
    if executor == "ray":
        check_installed()
    reasons = {
        f"jobs is {jobs}": jobs > 1,
        f"time_limit_seconds is {time_limit_seconds}": time_limit_seconds is not None,
        f"executor is {executor}": executor == "ray",
    }
    needed = any(reasons.values())
    if needed and in_subprocess is False:
        told = next(reason for reason, holds in reasons.items() if holds)
        raise ValueError(f"{told}, which takes subprocesses, but in_subprocess is False; leave one of them out")
    return limits if needed or in_subprocess else None


@dataclass(frozen=True)
class _Active:
    attempt: Attempt
    process: RunningPoint
    claim: ExitStack


def run_in_processes(tasks: Sequence[Task], store: Store, limits: ProcessLimits) -> Generator[Run, None, None]:
    """Run points that nobody else runs, and yield each run as it ends; closing the iterator kills those that run.

    If the store fails, the message of the StoreError names the file that keeps the point just computed.
    """
    waiting, active = deque(tasks), list[_Active]()
    try:
        while waiting or active:
            while waiting and len(active) < limits.jobs:
                with deferred_interrupt():  # a child without an entry in the list would not be killed
                    begun = _begin(limits.tagged(waiting.popleft()), store, limits)
                    active += [begun] if isinstance(begun, _Active) else []
                if isinstance(begun, Run):
                    yield begun
            ended = [one for one in active if one.process.has_ended() or _is_late(one, limits)]
            for one in ended:
                with deferred_interrupt():
                    active.remove(one)
                    run = _end(one, limits)
                yield run
            if not ended:
                time.sleep(_POLL_SECONDS)
    finally:
        complete_despite_interrupt(lambda: _kill(active))


def _begin(task: Task, store: Store, limits: ProcessLimits) -> _Active | Run | None:
    """The run of a point that was finished meanwhile; None for a point that another process runs."""
    with ExitStack() as lock:
        if not lock.enter_context(store.lock(task.point.key)):
            return None
        if by_another := finished_runs([task], store):
            return by_another[task.point.key]
        attempt = Attempt(task.point, store)
        try:
            return _Active(attempt, _start(_order(task, limits), limits), lock.pop_all())
        except BaseException:
            attempt.kill("its process could not be started")
            raise


def _start(order: Order, limits: ProcessLimits) -> RunningPoint:
    if limits.executor == "ray":
        return RayPoint(order)
    return PointProcess(order)


def _order(task: Task, limits: ProcessLimits) -> Order:
    import torch

    point, threads = task.point, limits.kernel_threads()
    torch_threads = threads if limits.executor == "ray" else limits.threads(torch.get_num_threads())
    config = point.config
    if limits.executor == "ray" and str(config.get("device", "cpu")).startswith("cuda"):
        config = {**config, "device": "cuda"}  # the only one that a worker sees
    return Order(point.sweep, config, point.tags["code"], READ_AT, threads, torch_threads)


def _is_late(one: _Active, limits: ProcessLimits) -> bool:
    return limits.time_limit_seconds is not None and one.attempt.seconds > limits.time_limit_seconds


def _end(one: _Active, limits: ProcessLimits) -> Run:
    with one.claim:
        seconds, in_time = one.attempt.seconds, one.process.has_ended()
        outcome = one.process.outcome(seconds) if in_time else _over_the_limit(seconds, limits)
        one.process.kill()
        if outcome.rows is not None:
            return one.attempt.finish(outcome.rows)
        return one.attempt.fail(outcome.error or "", outcome.trace)


def _over_the_limit(seconds: float, limits: ProcessLimits) -> Outcome:
    return Outcome(
        error=f"TimeoutError: stopped after {seconds:.1f} s, over its limit of {limits.time_limit_seconds:g} s; raise "
        "time_limit_seconds, or choose a smaller size"
    )


def _kill(active: list[_Active]) -> None:
    for one in active:
        one.process.kill()
    while active:
        one = active.pop()
        with one.claim:
            one.attempt.kill("stopped with its sweep")


_SETTINGS = ("WORKBENCH_", "NUMBA_CACHE_DIR", "DGLBACKEND", "XDG_")
"""Beginnings of the environment variables that workers get from this process."""


def check_installed() -> None:
    """Check that Ray is installed.

    Raises:
        RuntimeError: it is not.
    """
    if find_spec("ray") is None:
        raise RuntimeError(
            "executor is 'ray', which is not installed; pip install 'gnn-workbench[ray]', or leave it out"
        )


def cluster_cpus() -> int:
    """CPUs of the cluster that RAY_ADDRESS names or that runs on this machine; else one is started here."""
    return int(_connected().cluster_resources().get("CPU", 1))


class RayPoint:
    """A point that a worker of the cluster runs, with as many CPUs as threads, and a GPU if it is on one.

    Args:
        order: sent to the worker.
    """

    def __init__(self, order: Order) -> None:
        ray = _connected()
        threads = {"WORKBENCH_NUM_THREADS": str(order.threads), "OMP_NUM_THREADS": str(order.torch_threads)}
        settings = {name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)}
        remote = ray.remote(
            num_cpus=order.threads,
            num_gpus=int(str(order.config.get("device", "cpu")).startswith("cuda")),
            max_calls=1,  # a process per point, as on one machine
            max_retries=0,  # a point that dies has failed
            runtime_env={"env_vars": settings | threads},
        )
        self._ray, self._result = ray, remote(_worker_function()).remote(sys.path, asdict(order))

    def has_ended(self) -> bool:
        return bool(self._ray.wait([self._result], timeout=0)[0])

    def outcome(self, seconds: float) -> Outcome:
        try:
            return Outcome(**self._ray.get(self._result))
        except self._ray.exceptions.RayError as error:
            first = text_of(error).strip().partition("\n")[0]
            return Outcome(error=f"ChildProcessError: {type(error).__name__} after {seconds:.1f} s: {first}")

    def kill(self) -> None:
        if not self.has_ended():
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(self._result, force=True)


def _connected() -> Any:
    import ray

    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    return ray


def _worker_function() -> Callable[[list[str], dict[str, Any]], dict[str, Any]]:
    """The worker's side. Nested, since such functions are sent as code; the worker may not find the library yet."""

    def run(path: list[str], order: dict[str, Any]) -> dict[str, Any]:
        sys.path[:] = path
        child = import_module("workbench.experiment.point_child")  # by name: it imports what imports this module
        return asdict(child.run_order(child.Order(**order)))

    return run
