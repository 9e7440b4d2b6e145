"""Points in processes of their own: the same rows, limits, crashes, interruptions; children end with their parent."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest

from tests.experiment.elsewhere import running_elsewhere
from workbench.experiment import parallel, point_child, point_process
from workbench.experiment.attempt import Attempt
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.parallel import ProcessLimits, process_limits
from workbench.experiment.point_process import Outcome
from workbench.tracking.record import FAILED, FINISHED, KILLED, RUNNING
from workbench.tracking.store import StoreError

ALL = (FINISHED, FAILED, KILLED, RUNNING)

FATES = """
def run(config):
    import os, signal, subprocess, time

    child = subprocess.Popen(["sleep", "603"], start_new_session=True).pid if config.number in (2, 3) else 0
    with CALLS.open("a") as calls:
        calls.write(f"{os.getpid()} {config.number}\\n" + f"{child} child\\n" * (child > 0))
    if config.number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if config.number == 3:
        time.sleep(600)
    if config.number == 4:
        raise MemoryError("no room\\nfor 4")
    yield {"square": config.number**2, "pid": os.getpid(), "third": 1 / 3, "nothing": None, "infinite": float("inf")}
"""


@pytest.fixture
def fates(toys):
    """Figure 1, whose points meet different ends, by their number."""
    file = toys / "fig1.py"
    head, _, rest = file.read_text().partition("def run(config):")
    file.write_text(head + FATES + "\n\ndef draw" + rest.partition("def draw")[2])
    return load_experiment("toys/fig1")


def pids(toys: Path) -> list[int]:
    """Processes that have begun with a point."""
    return [pid for pid, what in _begun(toys) if what != "child"]


def children(toys: Path) -> list[int]:
    """Children of those processes, in sessions of their own."""
    return [pid for pid, what in _begun(toys) if what == "child"]


def _begun(toys: Path) -> list[tuple[int, str]]:
    file = toys / "calls.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(line.split()[0]), line.split()[1]) for line in lines]


def wait_until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def test_points_in_processes_give_their_rows_and_die_alone(fates, store, toys, tmp_path):
    runs = fates.runs(store=store, overrides={"number": [2, 1, 4]}, jobs=2)
    killed, finished, failed = runs
    assert [run.point.config["number"] for run in runs] == [2, 1, 4]
    assert killed.status == failed.status == FAILED and finished.status == FINISHED
    assert "was killed by SIGKILL, as the system does when memory runs out, after " in (killed.error or "")
    assert failed.error == "MemoryError: no room for 4" and failed.rows == ()
    (row,) = finished.rows
    assert {**row, "pid": 0} == {"square": 1, "pid": 0, "third": 1 / 3, "nothing": None, "infinite": float("inf")}
    assert len({os.getpid(), *pids(toys)}) == 4, "a process per point"
    assert len(children(toys)) == 1 and not is_alive(children(toys)[0])
    assert "traceback.txt" in {file.name for file in tmp_path.rglob("*.txt")}
    again = fates.runs(store=store, overrides={"number": [1]}, jobs=2)
    assert again[0].run_id == finished.run_id and len(pids(toys)) == 3, "finished points are not run again"


@pytest.mark.slow
def test_an_interruption_stops_the_children_and_keeps_finished_points(fates, store, toys, monkeypatch):
    own = type(store).finish

    def finish(self, *args):
        own(self, *args)
        wait_until(lambda: len(pids(toys)) == 2)
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "finish", finish)
        with pytest.raises(KeyboardInterrupt):
            fates.runs(store=store, overrides={"number": [3, 1]}, jobs=2)
    assert len(children(toys)) == 1 and not any(is_alive(pid) for pid in [*pids(toys), *children(toys)])
    assert {run.point.config["number"]: run.status for run in store.runs(statuses=ALL)} == {1: FINISHED, 3: KILLED}
    with store.lock(store.runs(statuses=(KILLED,))[0].point.key) as mine:
        assert mine, "its claim is released"


PARENT = """
import sys
from workbench.experiment.figure_loader import load_experiment
from workbench.tracking.file_store import FileStore

load_experiment("toys/fig1").runs(store=FileStore(sys.argv[1]), overrides={"number": [3]}, in_subprocess=True)
"""


@pytest.mark.slow
def test_children_die_with_a_parent_that_is_killed(fates, toys, tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path / "runs.jsonl")])
    try:
        wait_until(lambda: pids(toys) or parent.poll() is not None)
        assert is_alive(pids(toys)[0])
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert children(toys)
    wait_until(lambda: not any(is_alive(pid) for pid in [*pids(toys), *children(toys)]), 20)


def test_code_that_was_edited_after_it_was_read_is_not_run(toys):
    task = load_experiment("toys/fig1").tasks(overrides={"number": 1})[0]
    file, sent = toys / "fig1.py", parallel._order(task, ProcessLimits())
    assert point_child.run_order(sent).rows == [{"square": 1, "nodes": 4}]
    file.write_text(file.read_text().replace("it grows", "it rises"))
    assert point_child.run_order(sent).rows == [{"square": 1, "nodes": 4}], "presentation is not in the key"
    file.write_text(file.read_text().replace("**2 +", "**3 +"))
    told = "RuntimeError: the code of toys/fig1 was edited after this process read it; restart the sweep"
    assert point_child.run_order(sent).error == told


class Scripted:
    """Stands in for a process: points end one after the other, in the order of their numbers, 9 never."""

    started: ClassVar[list["Scripted"]] = []

    def __init__(self, order):
        self.order, self.number, self.killed = order, order.config["number"], False
        self.started.append(self)

    def has_ended(self):
        running = [one.number for one in self.started if not one.killed]
        return self.number == min(running) and self.number != 9

    def outcome(self, seconds):
        return Outcome(rows=[{"square": self.number**2}])

    def kill(self):
        self.killed = True


@pytest.fixture
def scripted(toys, monkeypatch):
    monkeypatch.setattr(Scripted, "started", [])
    monkeypatch.setattr(parallel, "PointProcess", Scripted)
    monkeypatch.setattr(parallel, "_POLL_SECONDS", 0)
    return Scripted.started


def test_as_many_points_as_jobs_run_at_a_time_and_come_back_in_the_grids_order(scripted, store, monkeypatch):
    most, own = [], Scripted.has_ended
    monkeypatch.setattr(
        Scripted, "has_ended", lambda self: (most.append(sum(not one.killed for one in scripted)), own(self))[1]
    )
    monkeypatch.setattr(parallel, "get_num_threads", lambda: 8)
    runs = load_experiment("toys/fig1").runs(store=store, overrides={"number": [5, 3, 1, 4, 2]}, jobs=3)
    assert [run.rows[0]["square"] for run in runs] == [25, 9, 1, 16, 4] and max(most) == 3
    stored = [json.loads(line)["rows"][0]["square"] for line in Path(store.location).read_text().splitlines()]
    assert stored == [1, 9, 4, 16, 25], "as they end"
    assert {(run.point.tags["jobs"], run.point.tags["threads"]) for run in runs} == {("3", "2")}
    assert {one.order.threads for one in scripted} == {2} and all(one.killed for one in scripted)


def test_one_process_at_a_time_has_all_threads_and_no_tag(scripted, store, monkeypatch):
    monkeypatch.setattr(parallel, "get_num_threads", lambda: 8)
    runs = load_experiment("toys/fig1").runs(store=store, in_subprocess=True)
    assert {one.order.threads for one in scripted} == {8} and not any("jobs" in run.point.tags for run in runs)


@pytest.mark.parametrize("of_the_size", [True, False])
def test_a_point_over_its_limit_fails_and_the_sweep_continues(scripted, toys, store, monkeypatch, of_the_size):
    text = (toys / "fig1.yaml").read_text()
    if of_the_size:
        (toys / "fig1.yaml").write_text(text.replace("smoke:\n", "smoke:\n    time_limit_seconds: 600\n"))
    monkeypatch.setattr(Attempt, "seconds", property(lambda self: 601.25))
    given: dict[str, Any] = {} if of_the_size else {"time_limit_seconds": 600}
    late, finished = load_experiment("toys/fig1").runs(store=store, overrides={"number": [9, 1]}, **given)
    assert late.status == FAILED and finished.status == FINISHED and all(one.killed for one in scripted)
    told = "TimeoutError: stopped after 601.2 s, over its limit of 600 s; raise time_limit_seconds, or choose a smaller"
    assert late.error == f"{told} size" and [run.error for run in store.runs(statuses=(FAILED,))] == [late.error]


def test_a_store_that_fails_stops_the_sweep_and_the_point_is_kept(scripted, store, monkeypatch):
    monkeypatch.setattr(type(store), "finish", lambda *_: (_ for _ in ()).throw(StoreError("the store is gone")))
    with pytest.raises(StoreError, match=r"the store is gone; .* `workbench import"):
        load_experiment("toys/fig1").runs(store=store, overrides={"number": [9, 1, 2]}, jobs=2)
    assert [run.rows[0]["square"] for run in type(store)(store.unsent).runs()] == [1]
    assert len(scripted) == 2 and all(one.killed for one in scripted)
    assert [run.point.config["number"] for run in store.runs(statuses=(KILLED,))] == [9]


def test_a_point_that_another_process_runs_is_waited_for(scripted, toys, store):
    experiment = load_experiment("toys/fig1")
    with running_elsewhere(store, experiment.tasks()[0].point):
        table = experiment.run(store=store, jobs=2)
    assert table.square.tolist() == [-1, 4, 9] and len(scripted) == 2


def test_a_process_that_does_not_start_leaves_no_running_point(scripted, store, monkeypatch):
    monkeypatch.setattr(parallel, "PointProcess", lambda order: (_ for _ in ()).throw(OSError("no more processes")))
    with pytest.raises(OSError, match="no more processes"):
        load_experiment("toys/fig1").runs(store=store, jobs=2)
    assert [run.error for run in store.runs(statuses=ALL)] == ["its process could not be started"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-signal.SIGKILL, "was killed by SIGKILL, as the system does when memory runs out,"),
        (-signal.SIGSEGV, "crashed with SIGSEGV"),
        (7, "ended with exit status 7 and without rows"),
    ],
)
def test_the_cause_of_death_is_told(code, words):
    assert point_process._cause(code) == f"the point's process {words}"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"jobs": 0}, "jobs is 0; it must be at least 1"),
        ({"time_limit_seconds": 0}, "time_limit_seconds is 0; it must be above 0"),
        ({"jobs": 2, "in_subprocess": False}, "jobs is 2, which takes subprocesses, but in_subprocess is False"),
        ({"time_limit_seconds": 5, "in_subprocess": False}, "time_limit_seconds is 5, which takes subprocesses"),
    ],
)
def test_options_that_contradict_are_refused_before_any_work(toys, store, calls, given, words):
    with pytest.raises(ValueError, match=words):
        load_experiment("toys/fig1").runs(store=store, **given)
    assert calls() == []


def test_points_share_the_cores():
    assert process_limits(1, None, None) is None and process_limits(1, None, False) is None
    assert process_limits(1, None, True) == ProcessLimits() and process_limits(1, 5, None) == ProcessLimits(1, 5)
    assert [ProcessLimits(jobs).threads(8) for jobs in (1, 3, 8, 20)] == [8, 2, 1, 1]
