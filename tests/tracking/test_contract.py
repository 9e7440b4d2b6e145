"""The contract of all stores, tested on each of them."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.tracking.points import ended, make_point
from workbench.tracking.opening import open_store
from workbench.tracking.record import FAILED, FINISHED, KILLED, RUNNING, Point
from workbench.tracking.store import Store

ALL = (RUNNING, FINISHED, FAILED, KILLED)


def again(store: Store) -> Store:
    """Open the store again, as another process would."""
    return open_store(store.location)


def test_a_new_store_is_empty(store: Store) -> None:
    store.check()
    assert store.runs() == [] and store.runs("betty/fig11") == [] and store.sweeps() == []
    assert store.close_orphans() == 0


def test_a_finished_point_round_trips(store: Store) -> None:
    point = make_point()
    rows = [{"peak_bytes": 2**53 + 1, "ratio": 0.1 + 0.2, "name": "ä", "won": True, "limit": None}]
    run_id = store.start(point)
    assert store.runs() == []
    store.finish(run_id, rows)
    (run,) = again(store).runs("betty/fig11", size="smoke")
    assert run.point == point
    assert (run.run_id, run.status, run.error) == (run_id, FINISHED, None)
    assert run.rows == tuple(rows)
    assert [type(value) for value in run.rows[0].values()] == [int, float, str, bool, type(None)]
    assert run.started_at > 1.7e9 and run.seconds is not None and 0 <= run.seconds < 600


def test_a_minimal_point(store: Store) -> None:
    point = Point("betty/fig11", "smoke", "c", {})
    store.finish(store.start(point), [])
    (run,) = again(store).runs()
    assert run.point == point and run.rows == ()


def test_scalars_of_libraries_become_python_numbers(store: Store) -> None:
    store.finish(store.start(make_point()), [{"a": np.float32(0.5), "b": torch.tensor(7), "c": np.bool_(True)}])
    (row,) = again(store).runs()[0].rows
    assert row == {"a": 0.5, "b": 7, "c": True}
    assert [type(value) for value in row.values()] == [float, int, bool]


def test_non_finite_values_are_stored(store: Store) -> None:
    store.finish(store.start(make_point()), [{"loss": math.nan, "bound": math.inf}])
    (row,) = again(store).runs()[0].rows
    assert math.isnan(row["loss"]) and row["bound"] == math.inf


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, torch.ones(2), object()])
def test_rows_are_flat(store: Store, value: object) -> None:
    run_id = store.start(make_point())
    with pytest.raises(TypeError, match="column 'bad' contains a"):
        store.finish(run_id, [{"bad": value}])
    store.fail(run_id, "its rows were not flat")
    assert [run.status for run in store.runs(statuses=ALL)] == [FAILED]


@pytest.mark.parametrize("status", [FAILED, KILLED])
def test_a_failure_is_stored_and_not_finished(store: Store, status: str) -> None:
    store.fail(store.start(make_point()), "MemoryError: 'too much'", status=status, artifacts={"traceback.txt": "…"})
    assert again(store).runs() == []
    (run,) = again(store).runs("betty/fig11", statuses=(status,))
    assert (run.status, run.error, run.rows, run.point) == (status, "MemoryError: 'too much'", (), make_point())


def test_runs_are_selected_by_sweep_size_and_key(store: Store) -> None:
    for key, sweep, size in [("a", "betty/fig11", "smoke"), ("b", "betty/fig11", "real"), ("c", "other/t-6", "smoke")]:
        store.finish(store.start(make_point(key, sweep, size)), [{"key": key}])
    store = again(store)

    def keys(*args: str, **kwargs: object) -> list[str]:
        return [run.point.key for run in store.runs(*args, **kwargs)]  # pyright: ignore[reportArgumentType]

    assert keys() == ["a", "b", "c"]
    assert keys("betty/fig11") == ["a", "b"]
    assert keys("betty/fig11", size="real") == ["b"]
    assert keys("other/t-6") == ["c"]
    assert keys("nobody/fig1") == []
    assert keys(size="smoke") == ["a", "c"]
    assert keys("betty/fig11", keys={"a", "b", "c"}) == ["a", "b"]
    assert keys("betty/fig11", keys=["b"]) == ["b"]
    assert keys("betty/fig11", keys=[]) == []
    assert store.sweeps() == ["betty/fig11", "other/t-6"]


def test_the_newest_run_is_last(store: Store) -> None:
    for started_at in (30.0, 10.0, 20.0):
        assert store.add(ended("c", {"x": started_at}, started_at=started_at))
    assert [run.rows[0]["x"] for run in store.runs()] == [10.0, 20.0, 30.0]


def test_a_run_from_elsewhere_is_added_once(store: Store) -> None:
    run = ended("c", {"x": 1.5, "epoch": 0}, {"x": 0.5, "epoch": 1})
    assert store.add(run)
    assert not again(store).add(run)
    (found,) = again(store).runs()
    assert (found.point, found.rows, found.started_at, found.seconds) == (run.point, run.rows, 1000.25, 1.5)


def test_a_failure_from_elsewhere_is_added_to_finished_runs(store: Store) -> None:
    failed = replace(ended("c", started_at=5.0), status=FAILED, error="no memory")
    assert store.add(failed) and store.add(ended("c", {"x": 1}, started_at=6.0)) and not store.add(failed)
    assert [(run.status, run.error) for run in store.runs(statuses=ALL)] == [(FAILED, "no memory"), (FINISHED, None)]


def test_a_running_run_is_not_added(store: Store) -> None:
    with pytest.raises(ValueError, match="only runs that have ended"):
        store.add(replace(ended("c"), status=RUNNING))


def test_runs_are_copied_between_stores(store: Store, tmp_path: Path) -> None:
    """This is how `workbench import` works."""
    other = open_store(str(tmp_path / "of-another-machine.jsonl"))
    for key in ("a", "b"):
        other.finish(other.start(make_point(key)), [{"x": 1}])
    assert [[store.add(run) for run in other.runs()] for _ in range(2)] == [[True, True], [False, False]]
    here, there = ({run.point.key: run.point for run in s.runs()} for s in (store, other))  # begun in one millisecond
    assert here == there and len(here) == 2


def test_locks_are_exclusive(store: Store) -> None:
    with store.lock("a") as mine, store.lock("b") as also, again(store).lock("a") as theirs:
        assert (mine, also, theirs) == (True, True, False)
    with store.lock("a") as mine:
        assert mine


def test_artifacts_stay_in_their_run(store: Store) -> None:
    run_id = store.start(make_point())
    with pytest.raises(ValueError, match="outside of its run"):
        store.finish(run_id, [], {"../x.txt": "…"})


def test_a_summary_is_logged_once_and_is_not_a_point(store: Store, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("x\n1\n")
    artifacts = {"figure.html": "<p>ä</p>", "tables/table.csv": tmp_path / "table.csv"}

    def log(key: str) -> str:
        return store.log_summary("betty/fig12", "betty/fig11", "smoke", key, artifacts, {"held": "true"})

    assert not store.has_summary("betty/fig12", "betty/fig11", "smoke", "d1")
    assert log("d1") == log("d1") != log("d2")
    assert store.has_summary("betty/fig12", "betty/fig11", "smoke", "d1")
    for other in (("betty/fig11", "betty/fig11", "smoke", "d1"), ("betty/fig12", "betty/fig11", "real", "d1")):
        assert not store.has_summary(*other)
    assert store.runs(statuses=ALL) == [] and store.sweeps() == []
    kept = [file for file in tmp_path.rglob("table.csv") if file.parent.name == "tables"]
    assert [file.read_text() for file in kept] == ["x\n1\n"] * 2
