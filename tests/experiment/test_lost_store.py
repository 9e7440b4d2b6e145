"""A store that fails in the middle of a sweep: the sweep stops with one message, and no computed point is lost."""

import errno
import os
import shutil
import signal
import tempfile

import pytest

from tests.tracking.failures import serve
from workbench.cli import main
from workbench.experiment.figure_loader import load_experiment
from workbench.tracking.file_store import FileStore, keep_unsent
from workbench.tracking.opening import open_store
from workbench.tracking.record import FAILED, KILLED, RUNNING
from workbench.tracking.store import StoreError

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(params=["mlflow", "file"])
def kept(request, tmp_path):
    """A store of each kind, which keeps the runs of the toys."""
    if request.param == "mlflow":
        shutil.copyfile(request.getfixturevalue("empty_database"), tmp_path / "mlflow.db")
        return open_store(f"sqlite:///{tmp_path}/mlflow.db")
    return open_store(str(tmp_path / "runs.jsonl"))


def break_at(monkeypatch, store, step, number, error):
    """The store fails at the numbered call of a step, and ever after."""
    own, calls = getattr(type(store), step), []

    def fails(self, *args, **kwargs):
        calls.append(step)
        if self is not store or len(calls) < number:
            return own(self, *args, **kwargs)
        raise error

    monkeypatch.setattr(type(store), step, fails)


@pytest.mark.parametrize("problem", [StoreError("the store is gone"), ValueError("of a library")], ids=["store", "bug"])
def test_a_point_that_the_store_refuses_is_imported_and_not_run_again(kept, calls, monkeypatch, capsys, problem):
    with monkeypatch.context() as patch:
        break_at(patch, kept, "finish", 2, problem)
        with pytest.raises(StoreError, match=rf"{problem}; .* `workbench import \S*\.unsent\.jsonl --store") as caught:
            load_experiment("toys/fig1").run(store=kept)
    assert calls() == ["1 0", "2 0"] and "\n" not in str(caught.value)
    command = str(caught.value).partition("`workbench ")[2].partition("`")[0]
    assert main(command.split()) == 0 and capsys.readouterr().out.startswith("1 of 1 runs were new")
    assert load_experiment("toys/fig1").run(store=kept).square.tolist() == [1, 4, 9]
    assert calls() == ["1 0", "2 0", "3 0"]


@pytest.mark.parametrize("name", ["mlflow.db", "runs.jsonl"])
def test_a_folder_that_is_gone_is_one_message_and_the_point_is_kept(
    toys, tmp_path, empty_database, monkeypatch, name, capsys
):
    """With the store go its locks: to release them must not hide what happened."""
    folder = tmp_path / "store"
    folder.mkdir()
    shutil.copyfile(empty_database, folder / "mlflow.db")
    uri = f"sqlite:///{folder}/mlflow.db" if name == "mlflow.db" else str(folder / name)
    experiment = load_experiment("toys/fig1")

    def lose(config):
        shutil.move(folder, tmp_path / "away")
        folder.write_text("")
        return [{"square": 1}]

    monkeypatch.setattr(experiment.module, "run", lose)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(StoreError, match=rf"{name}.* `workbench import {tmp_path}/\S+\.unsent\.jsonl"):
        experiment.run(store=open_store(uri))
    (file,) = tmp_path.glob("workbench-*/*.unsent.jsonl")
    assert [run.rows for run in FileStore(file).runs()] == [({"square": 1},)]


def test_a_store_that_refuses_to_start_a_run_stops_before_the_work(toys, kept, calls, monkeypatch):
    with monkeypatch.context() as patch:
        break_at(patch, kept, "start", 2, StoreError("the store is gone"))
        with pytest.raises(StoreError, match=r"^the store is gone$"):
            load_experiment("toys/fig1").run(store=kept)
    assert calls() == ["1 0"]
    assert load_experiment("toys/fig1").run(store=kept).square.tolist() == [1, 4, 9]
    assert calls() == ["1 0", "2 0", "3 0"] and not kept.unsent.exists()


def test_a_failure_that_the_store_refuses_is_kept_too(toys, kept, monkeypatch):
    break_at(monkeypatch, kept, "fail", 1, StoreError("the store is gone"))
    with pytest.raises(StoreError, match="workbench import"):
        load_experiment("toys/fig1").run(store=kept, overrides={"offset": 2})
    (run,) = FileStore(kept.unsent).runs(statuses=(FAILED,))
    assert run.error == "MemoryError: no room for 2"


def test_an_interruption_is_reported_even_if_the_store_is_gone(toys, kept, monkeypatch):
    experiment = load_experiment("toys/fig1")

    def interrupted(config):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment.module, "run", interrupted)
    break_at(monkeypatch, kept, "fail", 1, StoreError("the store is gone"))
    with pytest.raises(KeyboardInterrupt):
        experiment.run(store=kept)


def test_where_no_file_can_be_written_beside_the_store_it_is_kept_elsewhere(toys, store, tmp_path, monkeypatch):
    run = load_experiment("toys/fig1").runs(store=store)[0]
    store.unsent.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    told = str(keep_unsent(run, store, StoreError("no")))
    (file,) = (tmp_path / "elsewhere").rglob("*.unsent.jsonl")
    assert str(file) in told and [kept.rows for kept in FileStore(file).runs()] == [run.rows]
    shutil.rmtree(tmp_path / "elsewhere")
    assert "[{'square': 1, 'nodes': 4}]" in str(keep_unsent(run, store, StoreError("no")))


def test_a_damaged_file_of_unsent_runs_is_not_written_to(toys, store, tmp_path, monkeypatch):
    run = load_experiment("toys/fig1").runs(store=store)[0]
    store.unsent.write_text("{}\n{}\n")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert str(store.unsent) not in str(keep_unsent(run, store, StoreError("no")))
    assert store.unsent.read_text() == "{}\n{}\n"


def test_a_server_that_goes_away_in_the_middle_is_one_message(toys, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    pytest.importorskip("mlflow")
    with serve("500") as uri:
        assert main(["run", "toys/fig1", "--store", uri]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "start the server" in err and "secret" not in err


@pytest.mark.usefixtures("toys")
def test_rows_are_stored_before_the_run_is_finished(tmp_path, empty_database, monkeypatch):
    """Interrupted before its last step, a run is not finished; it is run again."""
    mlflow = pytest.importorskip("mlflow")
    shutil.copyfile(empty_database, tmp_path / "mlflow.db")
    store = open_store(f"sqlite:///{tmp_path}/mlflow.db")

    def interrupted(*_):
        assert list(tmp_path.rglob("rows.json"))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(mlflow.MlflowClient, "set_terminated", interrupted)
        with pytest.raises(KeyboardInterrupt):
            load_experiment("toys/fig1").run(store=store)
    assert store.runs() == [] and len(store.runs(statuses=(RUNNING,))) == 1
    assert load_experiment("toys/fig1").run(store=store).square.tolist() == [1, 4, 9]


def test_ctrl_c_while_a_run_is_stored_comes_after_it(toys, kept, calls, monkeypatch):
    own = type(kept).finish

    def finish(self, *args):
        os.kill(os.getpid(), signal.SIGINT)
        own(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(type(kept), "finish", finish)
        with pytest.raises(KeyboardInterrupt):
            load_experiment("toys/fig1").run(store=kept)
    assert [run.rows[0]["square"] for run in kept.runs()] == [1] and calls() == ["1 0"]
    assert kept.runs(statuses=(KILLED, RUNNING)) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_table_is_shown_though_its_figures_cannot_be_logged(toys, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(FileStore, "log_summary", lambda *_: (_ for _ in ()).throw(StoreError("it is gone")))
    assert main(["run", "toys/fig1", "--store", str(tmp_path / "runs.jsonl")]) == 1
    out = capsys.readouterr().out
    assert "✓ it grows" in out and out.count("FAILED to log the figures: it is gone") == 1


def test_text_that_is_no_unicode_does_not_lose_its_row(toys, kept, monkeypatch):
    experiment = load_experiment("toys/fig1")
    monkeypatch.setattr(experiment.module, "run", lambda config: [{"square": 1, "file": "caf\udce9"}])
    assert set(experiment.run(store=kept).file) == {"caf\\udce9"}
    assert [run.rows[0]["file"] for run in kept.runs()] == ["caf\\udce9"] * 3


def test_errors_that_are_no_unicode_are_kept(toys, kept, monkeypatch):
    experiment = load_experiment("toys/fig1")

    def fails(config):
        raise ValueError("caf\udce9")

    monkeypatch.setattr(experiment.module, "run", fails)
    assert {run.error for run in experiment.runs(store=kept)} == {"ValueError: caf\\udce9"}


def test_durations_do_not_change_when_the_clock_is_set(toys, kept, monkeypatch):
    import time

    experiment, own, offset = load_experiment("toys/fig1"), time.time, []
    run = experiment.module.run

    def set_back(config):
        offset.append(-7200.0)
        return run(config)

    monkeypatch.setattr(time, "time", lambda: own() + sum(offset))
    monkeypatch.setattr(experiment.module, "run", set_back)
    assert all(0 <= (one.seconds or -1) < 600 for one in experiment.runs(store=kept))
    assert all(0 <= (one.seconds or -1) < 600 for one in kept.runs())
