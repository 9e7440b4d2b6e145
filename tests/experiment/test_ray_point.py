"""Points on a Ray cluster: same rows, same store, same resume. A fake has Ray's interface; the slow test has Ray."""

import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from workbench.cli import main
from workbench.experiment import parallel, parallel as ray_point
from workbench.experiment.figure_loader import load_experiment
from workbench.tracking.file_store import FileStore
from workbench.tracking.record import FAILED, FINISHED


class RayError(Exception):
    """Base of Ray's exceptions."""


class WorkerCrashedError(RayError):
    """A worker died."""


class Task:
    """A task of the fake; it runs when it is asked for, and number 3 never ends."""

    def __init__(self, function: Any, options: dict[str, Any], args: tuple[Any, ...]) -> None:
        self.function, self.options, self.args = function, options, args
        self.number, self.cancelled = args[1]["config"]["number"], False


class FakeRay(ModuleType):
    """A cluster of 8 CPUs with Ray's functions; a task runs in this process, when its result is fetched."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.exceptions = SimpleNamespace(RayError=RayError)
        self.tasks: list[Task] = []
        self.connections: list[dict[str, Any]] = []

    def init(self, **options: Any) -> None:
        self.connections.append(options)

    def is_initialized(self) -> bool:
        return bool(self.connections)

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 8.0, "memory": 1e9}

    def remote(self, **options: Any) -> Any:
        def start(function: Any, args: tuple[Any, ...]) -> Task:
            self.tasks.append(Task(function, options, args))
            return self.tasks[-1]

        return lambda function: SimpleNamespace(remote=lambda *args: start(function, args))

    def wait(self, tasks: list[Task], timeout: float) -> tuple[list[Task], list[Task]]:
        ended = [task for task in tasks if task.number != 3 or task.cancelled]
        return ended, [task for task in tasks if task not in ended]

    def get(self, task: Task) -> Any:
        if task.number == 2:
            raise WorkerCrashedError("The worker died unexpectedly\nwhile executing this task.")
        return task.function(*task.args)

    def cancel(self, task: Task, force: bool) -> None:
        assert force
        task.cancelled = True


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setattr(ray_point, "find_spec", lambda name: name == "ray")
    monkeypatch.setattr(parallel, "_POLL_SECONDS", 0)
    return fake


def test_points_run_on_workers_and_the_sweep_resumes(toys, store, calls, cluster):
    experiment = load_experiment("toys/fig1")
    given: dict[str, Any] = {"store": store, "executor": "ray", "jobs": 4}
    table = experiment.run(overrides={"number": [1, 4]}, **given)
    assert table.square.tolist() == [1, 16] and len(cluster.connections) == 1
    assert experiment.run(overrides={"number": [1, 4, 5]}, **given).square.tolist() == [1, 16, 25]
    assert calls() == ["1 0", "4 0", "5 0"], "finished points are not run again"
    tags = store.runs()[0].point.tags
    assert (tags["executor"], tags["jobs"], tags["threads"]) == ("ray", "4", "2")


def test_a_task_has_the_cpus_of_its_threads_a_gpu_if_needed_and_the_settings(toys, store, cluster, monkeypatch):
    monkeypatch.setenv("PRIVATE", "1")
    load_experiment("toys/fig1").run(store=store, overrides={"number": [1]}, executor="ray", jobs=2)
    options = cluster.tasks[0].options
    settings = options.pop("runtime_env")["env_vars"]
    assert options == {"num_cpus": 4, "num_gpus": 0, "max_calls": 1, "max_retries": 0}
    assert settings["WORKBENCH_NUM_THREADS"] == settings["OMP_NUM_THREADS"] == "4"
    assert settings["WORKBENCH_EXPERIMENTS"] == str(toys.parent) and "PRIVATE" not in settings
    order = cluster.tasks[0].args[1]
    ray_point.RayPoint(ray_point.Order(**{**order, "config": {**order["config"], "device": "cuda"}}))
    assert cluster.tasks[-1].options["num_gpus"] == 1


def test_a_worker_that_dies_and_a_point_over_its_limit_fail_alone(toys, store, cluster):
    given: dict[str, Any] = {"executor": "ray", "jobs": 3, "time_limit_seconds": 0.2}
    died, finished, late = load_experiment("toys/fig1").runs(store=store, overrides={"number": [2, 1, 3]}, **given)
    assert (died.status, finished.status, late.status) == (FAILED, FINISHED, FAILED)
    assert (died.error or "").startswith("ChildProcessError: WorkerCrashedError after ")
    assert (died.error or "").endswith(" s: The worker died unexpectedly")
    assert "over its limit of 0.2 s" in (late.error or "")
    assert [task.cancelled for task in cluster.tasks] == [False, False, True]


def test_the_command_line_chooses_ray(toys, tmp_path, cluster, capsys):
    uri = str(tmp_path / "runs.jsonl")
    assert main(["run", "toys/fig1", "--store", uri, "--executor", "ray", "--set", "number=[1,4]"]) == 0
    assert len(cluster.tasks) == 2 and "it grows" in capsys.readouterr().out


def test_without_ray_nothing_starts(toys, store, calls, monkeypatch):
    monkeypatch.setattr(ray_point, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=r"executor is 'ray', which is not installed; pip install .*\[ray\]"):
        load_experiment("toys/fig1").runs(store=store, executor="ray")
    with pytest.raises(ValueError, match="executor 'slurm' is not known; choose from processes, ray"):
        load_experiment("toys/fig1").runs(store=store, executor="slurm")  # pyright: ignore[reportArgumentType]
    assert calls() == []


@pytest.mark.slow
def test_points_run_on_a_real_cluster(toys, store: FileStore, calls, monkeypatch, tmp_path):
    ray = pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # for the cluster's token
    for patience in ("RAY_raylet_start_wait_time_s=180", "RAY_agent_register_timeout_ms=180000"):  # on a busy machine
        monkeypatch.setenv(*patience.split("="))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        experiment = load_experiment("toys/fig1")
        given: dict[str, Any] = {"store": store, "executor": "ray", "jobs": 2}
        runs = experiment.runs(overrides={"number": [1, 2, 3], "offset": 2}, **given)
        assert [run.status for run in runs] == [FINISHED, FAILED, FINISHED]
        assert runs[1].error == "MemoryError: no room for 2"
        experiment.runs(overrides={"number": [1, 3, 4], "offset": 2}, **given)
        assert sorted(calls()) == ["1 0", "2 0", "3 0", "4 0"]
    finally:
        ray.shutdown()


def test_a_worker_has_the_only_gpu_that_it_sees(toys, store, cluster):
    experiment = load_experiment("toys/fig1")
    (task,) = experiment.tasks(overrides={"number": [1]})
    given = replace(task, point=replace(task.point, config={**task.point.config, "device": "cuda:1"}))
    orders = [
        parallel._order(given, limits) for limits in (parallel.ProcessLimits(executor="ray"), parallel.ProcessLimits())
    ]
    assert [order.config["device"] for order in orders] == ["cuda", "cuda:1"]
