"""A point on a Ray cluster; this file alone names Ray.

Workers need the same code and data at the same paths, as on one machine or a shared file system. They run points in
processes of their own, and the process that runs the sweep writes the store, so a sweep resumes like any other.
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from workbench.error_text import text_of
from workbench.experiment.point_process import Order, Outcome

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
