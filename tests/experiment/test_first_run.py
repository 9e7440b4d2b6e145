"""First runs, which create their store, are killed: the next run succeeds and every point is finished once."""

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.experiment.first_runs import MOMENTS, SWEEP, start
from workbench.tracking.opening import open_store
from workbench.tracking.record import FINISHED, RUNNING

pytest.importorskip("mlflow")

KILLS = 100


def check_whole(uri: str) -> None:
    store = open_store(uri)
    finished = store.runs(SWEEP, statuses=(FINISHED,))
    assert [run.rows[0]["square"] for run in sorted(finished, key=lambda run: run.point.config["number"])] == [1, 4, 9]
    assert store.runs(SWEEP, statuses=(RUNNING,)) == []


@pytest.mark.slow
def test_killed_at_every_step_of_creation_and_resumed(toys, tmp_path, empty_database, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("BUILT_DATABASE", str(empty_database))
    uri, log = f"sqlite:///{tmp_path}/store/mlflow.db", tmp_path / "log"
    for moment in MOMENTS:
        process = start(uri, log, die_at=moment)
        process.join()
        assert process.exitcode == -signal.SIGKILL, (moment, log.read_text())
    process = start(uri, log)
    process.join()
    assert process.exitcode == 0, log.read_text()
    check_whole(uri)


def seconds_to_end(uri: str, log: Path, *, kill_after: float | None = None) -> tuple[float, int | None]:
    """How long a run took, and its exit code."""
    began, process = time.monotonic(), start(uri, log)
    process.join(kill_after)
    if kill_after is not None and process.is_alive():
        process.kill()
    process.join()
    return time.monotonic() - began, process.exitcode


@pytest.mark.slow
def test_killed_at_random_moments_and_resumed(toys, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    moments, log = random.Random(4), tmp_path / "log"
    seconds_to_end(f"sqlite:///{tmp_path}/warm/mlflow.db", log)
    whole, _ = seconds_to_end(f"sqlite:///{tmp_path}/undisturbed/mlflow.db", log)
    outcomes: Counter[str] = Counter()
    for number in range(KILLS):
        folder = tmp_path / str(number)
        uri = f"sqlite:///{folder}/mlflow.db"
        _, code = seconds_to_end(uri, log, kill_after=moments.uniform(0.0, whole))
        found = (folder / "mlflow.db").exists() and (folder / "mlflow.db").stat().st_size > 0
        outcomes[f"{'killed' if code == -signal.SIGKILL else 'ended'}, {'with' if found else 'without'} database"] += 1
        _, code = seconds_to_end(uri, log)
        assert code == 0, (number, log.read_text()[-2000:])
        check_whole(uri)
    assert outcomes["killed, with database"] and outcomes["killed, without database"]
