"""Sweeps that are killed at random moments, and two at once: every point is finished exactly once all the same."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.toy_experiments import CODE
from workbench.tracking.opening import open_store
from workbench.tracking.record import FAILED, FINISHED, KILLED, RUNNING

POINTS = 90
KILLS = 30
SWEEP = "toys/fig1"

pytestmark = pytest.mark.slow


@pytest.fixture
def uri(toys: Path, tmp_path: Path) -> str:
    """A store; the points of the sweep take a tenth of a second."""
    spec = (toys / "fig1.yaml").read_text().replace("[1, 2, 3]", str(list(range(1, POINTS + 1))))
    (toys / "fig1.yaml").write_text(spec)
    slow = CODE.replace("    yield {", "    import time\n\n    time.sleep(0.1)\n    yield {")
    (toys / "fig1.py").write_text(slow)
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def start(uri: str, stderr: int | None = None) -> subprocess.Popen:
    command = [sys.executable, "-m", "workbench.cli", "run", SWEEP, "--store", uri]
    environment = {**os.environ, "WORKBENCH_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr)


def kill(process: subprocess.Popen) -> bool:
    """Return True if it was still running."""
    running = process.poll() is None
    if running:
        process.send_signal(signal.SIGKILL)
    process.wait()
    return running


def statuses(uri: str) -> Counter[str]:
    runs = open_store(uri).runs(SWEEP, statuses=(FINISHED, FAILED, KILLED, RUNNING))
    return Counter(run.status for run in runs)


def check_whole(uri: str) -> None:
    finished = open_store(uri).runs(SWEEP)
    assert set(Counter(run.point.key for run in finished).values()) == {1}
    assert len({run.point.tags["code"] for run in finished}) == 1, "the library was edited meanwhile"
    assert sorted(run.point.config["number"] for run in finished) == list(range(1, POINTS + 1))
    assert all(run.rows[0]["square"] == run.point.config["number"] ** 2 for run in finished)
    assert statuses(uri)[RUNNING] == 0


class Reader(threading.Thread):
    """Reads the store all the time; keeps what went wrong."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self.uri, self.problems, self.reads, self.stop = uri, [], 0, threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.2):
            try:
                statuses(self.uri)
                self.reads += 1
            except Exception as problem:  # whatever it is, it is the finding
                self.problems.append(problem)


def test_thirty_kills(uri):
    moments = random.Random(7)
    open_store(uri).check()
    reader = Reader(uri)
    reader.start()
    longest = float("inf")
    for number in range(KILLS):
        process, began, done = start(uri), time.monotonic(), statuses(uri)[FINISHED]
        deadline = began + (moments.uniform(0.3, longest) if number else longest)
        while time.monotonic() < deadline and statuses(uri)[FINISHED] == done:  # on a quick machine points would end
            time.sleep(0.02)
        if not number:  # how long it takes to begin with the points
            longest = time.monotonic() - began + 0.5
        time.sleep(moments.uniform(0.0, 0.1))  # into the next point
        assert kill(process), "the sweep ended before all kills; it needs more points"
        assert statuses(uri)[RUNNING] <= 1
    assert start(uri).wait() == 0
    reader.stop.set()
    reader.join()
    assert reader.problems == [] and reader.reads > KILLS
    check_whole(uri)
    assert statuses(uri)[KILLED] > 0


def test_two_sweeps_at_once_one_of_them_killed(uri):
    sweeps = [start(uri), start(uri), start(uri)]
    while statuses(uri)[FINISHED] < 10:
        time.sleep(0.1)
    assert kill(sweeps[0])
    assert [sweep.wait() for sweep in sweeps[1:]] == [0, 0]
    assert start(uri).wait() == 0, "closes what the killed one left"
    check_whole(uri)


def test_interruption_says_how_to_go_on(uri):
    open_store(uri).check()
    process = start(uri, stderr=subprocess.PIPE)
    while not statuses(uri)[FINISHED]:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    errors = process.communicate()[1].decode()
    assert process.returncode == 130 and "run the same command to resume" in errors
    found = statuses(uri)
    assert 0 < found[FINISHED] < POINTS and found[RUNNING] + found[KILLED] <= 1
    assert start(uri).wait() == 0
    check_whole(uri)
