"""Runs as MLflow's own client sees them."""

import json
import math
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psutil
import pytest
import yaml

from tests.tracking.points import DATASET, ended, make_point, start_python
from workbench.tracking.mlflow_store import BOOT, HOST, PID, STARTED, is_dead, process_started, this_process
from workbench.tracking.opening import open_store
from workbench.tracking.record import FAILED, FINISHED, KILLED, RUNNING
from workbench.tracking.store import Store, StoreError

mlflow = pytest.importorskip("mlflow")


@pytest.fixture
def client(mlflow_store: Store) -> Any:
    mlflow_store.check()  # opens the database with the store's care for warnings
    return mlflow.MlflowClient(mlflow_store.location)


def only(client: Any) -> Any:
    """Return the only run."""
    (run,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    return run


def folder(run: Any) -> Path:
    return Path(unquote(urlsplit(run.info.artifact_uri).path))


def test_a_point_is_a_flat_run_in_the_experiment_of_its_paper(mlflow_store: Store, client: Any, tmp_path: Path) -> None:
    mlflow_store.finish(mlflow_store.start(make_point()), [{"peak_bytes": 12, "best": True, "method": "reg"}])
    run = only(client)
    assert client.get_experiment(run.info.experiment_id).name == "betty"
    assert run.info.status == FINISHED and run.info.run_name == "cora · reg · parts=8 · rate=1e-05 · fig11"
    expected = {"figure": "fig11", "figures": "betty/fig11, betty/fig12", "sweep": "betty/fig11", "size": "smoke"}
    expected |= {"key": "c1", "kind": "point", "dataset": "cora"}
    expected |= {"device": "a CPU", "commit": "c0ffee", "mlflow.source.git.commit": "c0ffee"}
    assert expected.items() <= run.data.tags.items()
    assert "mlflow.parentRunId" not in run.data.tags
    shown = {name for name in run.data.tags if not name.startswith("mlflow.")}
    assert shown == {*expected} - {"mlflow.source.git.commit"}, "versions, digests and process ids are hidden"
    assert mlflow_store.runs()[0].point == make_point()
    assert run.data.params["dataset"] == "cora" and run.data.params["num_parts"] == "8"
    assert run.data.metrics == {"memory/peak_MiB": 12 / 2**20, "best": 1.0}
    assert folder(run).is_relative_to(tmp_path / "mlruns" / "betty")
    assert yaml.safe_load((folder(run) / "config.yaml").read_text()) == make_point().config
    assert json.loads((folder(run) / "rows.json").read_text()) == [{"peak_bytes": 12, "best": True, "method": "reg"}]


def test_values_within_a_point_are_parameters(mlflow_store: Store, client: Any) -> None:
    run_id = mlflow_store.start(make_point(num_parts=8))
    mlflow_store.finish(run_id, [{"num_parts": 8, "kappa": k, "miss_rate": 1 / k} for k in (1, 64)])
    run = client.get_run(run_id)
    assert (
        run.data.params["kappa"] == "[1, 64]"
        and run.data.params["num_parts"] == "8"
        and "kappa" not in run.data.metrics
    )
    assert {m.step: m.value for m in client.get_metric_history(run_id, "miss_rate")} == {1: 1.0, 64: 1 / 64}


def test_an_experiment_says_what_it_is_and_opens_the_pages_for_models(mlflow_store: Store, client: Any) -> None:
    point = make_point()
    mlflow_store.start(replace(point, tags={**point.tags, "paper": "Betty (ASPLOS 2023)"}))
    tags = client.get_experiment(only(client).info.experiment_id).tags
    assert tags["mlflow.note.content"].startswith("**Betty (ASPLOS 2023)**")
    assert tags["mlflow.experimentKind"] == "custom_model_development"


def test_runs_of_stores_that_hide_no_tags_are_read(mlflow_store: Store, client: Any) -> None:
    mlflow_store.add(ended())
    run = only(client)
    for name, value in run.data.tags.items():
        if name.startswith("mlflow.workbench."):
            client.delete_tag(run.info.run_id, name)
            client.set_tag(run.info.run_id, name.removeprefix("mlflow.workbench."), value)
    assert mlflow_store.runs()[0].point == make_point()


def test_the_data_set_is_an_input(mlflow_store: Store, client: Any) -> None:
    mlflow_store.start(make_point())
    (entry,) = only(client).inputs.dataset_inputs
    assert (entry.dataset.name, entry.dataset.digest) == ("cora", DATASET.fingerprint[:12])
    assert json.loads(entry.dataset.profile) == {"num_nodes": 2708, "num_edges": 10556}


def test_a_curve_is_a_stepped_metric(mlflow_store: Store, client: Any) -> None:
    rows = [{"epoch": epoch, "loss": 1 / (1 + epoch)} for epoch in range(1200)]  # more than one call takes
    rows[3]["loss"] = math.nan
    run_id = mlflow_store.start(make_point())
    mlflow_store.finish(run_id, rows)
    history = {metric.step: metric.value for metric in client.get_metric_history(run_id, "loss")}
    assert len(history) == 1200 and history[1199] == 1 / 1200 and math.isnan(history[3])
    assert mlflow_store.runs()[0].rows[1199] == rows[1199]


def test_more_and_longer_values_than_one_call_accepts(mlflow_store: Store, client: Any) -> None:
    config = {f"setting {number}/%": "v" * 6100 for number in range(130)}
    mlflow_store.fail(mlflow_store.start(make_point(**config)), "no " * 9000)
    run = only(client)
    assert len(run.data.params) == 130 + 6 and len(run.data.params["setting 0/_"]) == 6000
    (found,) = mlflow_store.runs(statuses=(FAILED,))
    assert found.point.config["setting 129/%"] == "v" * 6100
    assert len(found.error or "") == 8000


def test_more_runs_than_a_page(mlflow_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.tracking.mlflow_store.PAGE", 3)
    for number in range(8):
        mlflow_store.add(ended(str(number), started_at=1.0 + number))
    assert [run.point.key for run in mlflow_store.runs()] == list("01234567")


def test_runs_deleted_in_the_ui_are_gone(mlflow_store: Store, client: Any) -> None:
    mlflow_store.add(ended())
    client.delete_run(only(client).info.run_id)
    assert mlflow_store.runs() == [] and mlflow_store.add(ended())


def test_a_finished_run_without_rows_is_skipped(mlflow_store: Store, client: Any) -> None:
    mlflow_store.add(ended())
    (folder(only(client)) / "rows.json").unlink()
    with pytest.warns(UserWarning, match=r"is left out, its point runs again: rows\.json is missing"):
        assert mlflow_store.runs() == []


def test_other_runs_are_ignored(mlflow_store: Store, client: Any) -> None:
    mlflow_store.add(ended())
    client.create_run("0", tags={"sweep": "betty/fig11"})
    assert len(mlflow_store.runs()) == 1 and mlflow_store.sweeps() == ["betty/fig11"]


def test_a_deleted_experiment_is_not_recreated(mlflow_store: Store, client: Any) -> None:
    mlflow_store.add(ended())
    client.delete_experiment(only(client).info.experiment_id)
    with pytest.raises(
        StoreError, match=r"'betty' was deleted; restore it with `mlflow experiments restore --experiment-id \d+`"
    ):
        open_store(mlflow_store.location).start(make_point())


def test_an_experiment_created_concurrently_is_used(mlflow_store: Any, client: Any, monkeypatch: Any) -> None:
    looked_for = mlflow_store._find_experiment

    def find_then_create(paper: str) -> str | None:
        found = looked_for(paper)
        if found is None:
            client.create_experiment(paper)
        return found

    monkeypatch.setattr(mlflow_store, "_find_experiment", find_then_create)
    assert mlflow_store.add(ended()) and client.get_run(only(client).info.run_id)


def test_a_summary_is_a_separate_run(mlflow_store: Store, client: Any) -> None:
    mlflow_store.log_summary("betty/fig12", "betty/fig11", "smoke", "5", {"figure.html": "<p>"}, {"held": "true"})
    run = only(client)
    assert {"kind": "summary", "figure": "fig12", "key": "5", "held": "true"}.items() <= run.data.tags.items()
    assert run.info.status == FINISHED and (folder(run) / "figure.html").read_text() == "<p>"


def test_no_global_state_of_mlflow_changes(mlflow_store: Store) -> None:
    before = mlflow.get_tracking_uri()
    mlflow_store.finish(mlflow_store.start(make_point()), [])
    assert mlflow.get_tracking_uri() == before and mlflow.active_run() is None


def test_a_folder_of_any_name(tmp_path: Path, empty_database: Path) -> None:
    place = tmp_path / "a b%20ä #1"
    place.mkdir()
    shutil.copyfile(empty_database, place / "mlflow.db")
    store = open_store(root=place)
    store.finish(store.start(make_point()), [{"x": 1}])
    assert open_store(root=place).runs()[0].rows == ({"x": 1},)
    assert (place / "mlruns" / "betty").is_dir()


ORPHAN = """
import sys, time
from tests.tracking.points import make_point
from workbench.tracking.opening import open_store
store = open_store(sys.argv[1])
store.check()
with store.lock("0d"):
    store.start(make_point("0d"))
    print("started", flush=True)
    time.sleep(600)
"""


def test_only_orphaned_runs_are_closed(mlflow_store: Store, client: Any) -> None:
    own = mlflow_store.start(make_point("0a"))
    reused = mlflow_store.start(make_point("0b"))
    client.set_tag(reused, STARTED, str(float(client.get_run(reused).data.tags[STARTED]) - 3600))
    elsewhere = mlflow_store.start(make_point("0c"))
    client.set_tag(elsewhere, HOST, "elsewhere")
    client.set_tag(elsewhere, PID, "4194304")
    with start_python(ORPHAN, mlflow_store.location) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "started\n"
            running = {run.point.key for run in mlflow_store.runs(statuses=(RUNNING,))}
            assert running == {"0a", "0b", "0c", "0d"}
            assert mlflow_store.close_orphans() == 1  # the one whose process number is another's by now
            with mlflow_store.lock("0d") as mine:
                assert not mine
        finally:
            process.send_signal(signal.SIGKILL)
    assert mlflow_store.close_orphans() == 1 and mlflow_store.close_orphans() == 0
    with mlflow_store.lock("0d") as mine:
        assert mine
    killed = {run.point.key: run.error for run in mlflow_store.runs(statuses=(KILLED,))}
    assert set(killed) == {"0b", "0d"} and all(killed.values())
    assert {run.run_id for run in mlflow_store.runs(statuses=(RUNNING,))} == {own, elsewhere}


def test_a_run_with_a_locked_key_is_alive_and_finishing_clears_its_error(mlflow_store: Store, client: Any) -> None:
    """A process in a container with the same host name is not visible."""
    run_id = mlflow_store.start(make_point("aa"))
    client.set_tag(run_id, PID, "4194304")
    with mlflow_store.lock("aa"):
        assert open_store(mlflow_store.location).close_orphans() == 0
    assert open_store(mlflow_store.location).close_orphans() == 1
    mlflow_store.finish(run_id, [{"x": 1}])
    (run,) = mlflow_store.runs(statuses=(RUNNING, FINISHED, FAILED, KILLED))
    assert (run.status, run.error, run.rows) == (FINISHED, None, ({"x": 1},))


CREATE = """
import sys
from tests.tracking.points import make_point
from workbench.tracking.opening import open_store
print("ready", flush=True)
sys.stdin.readline()
store = open_store(sys.argv[1])
store.check()
store.finish(store.start(make_point(sys.argv[2])), [{"x": 1}])
"""


@pytest.mark.slow
def test_two_processes_create_one_store(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"
    makers = [start_python(CREATE, uri, name) for name in "ab"]
    outputs = [maker.communicate("\n", timeout=120)[0] for maker in makers]
    assert [maker.returncode for maker in makers] == [0, 0], outputs
    store = open_store(uri)
    assert sorted(run.point.key for run in store.runs()) == ["a", "b"]


def test_this_process_is_alive() -> None:
    assert not is_dead(this_process())


def test_a_process_that_ended_is_dead() -> None:
    with start_python("import time; time.sleep(600)") as child:
        tags = {**this_process(), PID: str(child.pid), STARTED: process_started(child.pid)}
        alive = is_dead(tags)
        child.kill()
    assert (alive, is_dead(tags)) == (False, True)


def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()"], stdin=-1, stdout=-1, text=True)
    try:
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        tags = {**this_process(), PID: str(child.pid), STARTED: process_started(child.pid)}
        child.kill()
        while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
            pass
        assert is_dead(tags)
    finally:
        child.communicate()


def test_a_reused_process_id_is_another_process() -> None:
    own = this_process()
    assert is_dead({**own, STARTED: str(int(own[STARTED]) - 3600)})


def test_no_process_survives_a_reboot() -> None:
    assert is_dead({**this_process(), BOOT: "an earlier one"})


def test_processes_of_other_hosts_are_not_dead() -> None:
    assert not is_dead({**this_process(), HOST: "elsewhere", PID: "4194304"})
    assert not is_dead({})


def test_changes_of_the_system_time_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil derives the start of a process from the system time."""
    tags = this_process()
    own = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: own(self) - 7200)
    assert not is_dead(tags)
