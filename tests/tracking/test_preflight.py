"""Unusable stores are reported immediately, with a remedy."""

import shutil
import socket
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

import pytest

from tests.tracking.points import ended, make_point
from workbench.tracking.opening import open_store
from workbench.tracking.preflight import check_writable, create_database, has_no_runs, is_new
from workbench.tracking.store import StoreError


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_missing_server(closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{closed_port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(StoreError, match=rf"127.0.0.1:{closed_port} can't be used; start the server.*TRACKING_URI"):
        open_store().check()


def test_a_server_that_never_responds(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StoreError, match="can't be used; start the server"):
            open_store(uri).check()


@pytest.mark.parametrize(
    "content", [b"no database at all, but long enough to be read as one" * 50, b"SQLite format 3\0" * 99]
)
def test_a_file_that_is_not_a_database(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "mlflow.db"
    file.write_bytes(content)
    with pytest.raises(StoreError, match=r"mlflow\.db is not an intact SQLite database \(.*move it away"):
        check_writable(file)
    assert file.read_bytes() == content


def test_a_store_checks_its_database(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    (tmp_path / "mlflow.db").write_bytes(b"x" * 5000)
    with pytest.raises(StoreError, match="not an intact SQLite database"):
        open_store(f"sqlite:///{tmp_path}/mlflow.db").check()


def test_a_database_with_a_damaged_page(tmp_path: Path, empty_database: Path) -> None:
    content = bytearray(empty_database.read_bytes())
    content[8192:16384] = b"\xff" * 8192
    (tmp_path / "mlflow.db").write_bytes(content)
    with pytest.raises(StoreError, match="not an intact SQLite database"):
        check_writable(tmp_path / "mlflow.db")


@pytest.mark.parametrize("name", ["mlflow.db", "runs.jsonl"])
def test_a_folder_that_can_not_be_created(tmp_path: Path, name: str) -> None:
    if name == "mlflow.db":
        pytest.importorskip("mlflow")
    (tmp_path / "file").write_text("")
    uri = str(tmp_path / "file" / name)
    with pytest.raises(StoreError, match=r"can't be (written|used)"):
        open_store(uri if name == "runs.jsonl" else f"sqlite:///{uri}").check()


def test_a_database_of_an_older_mlflow(tmp_path: Path, mlflow_uri: str) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
    with pytest.raises(StoreError, match=r"older MLflow: make a copy and run `python -m mlflow db upgrade sqlite:"):
        open_store(mlflow_uri).check()


def test_a_database_appears_when_it_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "new" / "mlflow.db"

    def build(draft: Path) -> None:
        draft.write_bytes(b"whole")
        assert not file.exists() and draft.parent != file.parent

    create_database(file, build)
    assert file.read_bytes() == b"whole" and list(file.parent.iterdir()) == [file]


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def build(draft: Path) -> None:
        draft.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create_database(tmp_path / "mlflow.db", build)
    assert is_new(tmp_path / "mlflow.db")


@pytest.fixture
def quick_build(monkeypatch: pytest.MonkeyPatch, empty_database: Path) -> None:
    """Copy databases instead of building them."""
    from workbench.tracking.mlflow_store import _Database

    monkeypatch.setattr(_Database, "_build", lambda _, draft: shutil.copyfile(empty_database, draft))


@pytest.mark.usefixtures("quick_build")
def test_an_empty_file_is_replaced_and_a_stale_journal_ignored(tmp_path: Path) -> None:
    """Killed first runs of earlier versions left such files."""
    (tmp_path / "mlflow.db").touch()
    with closing(sqlite3.connect(tmp_path / "other.db", isolation_level=None)) as other:
        other.executescript("PRAGMA cache_size = 1; CREATE TABLE t (x); BEGIN;")
        other.executemany("INSERT INTO t VALUES (?)", [("x" * 900,)] * 200)
        shutil.copyfile(tmp_path / "other.db-journal", tmp_path / "mlflow.db-journal")
    assert (tmp_path / "mlflow.db-journal").stat().st_size > 0
    store = open_store(f"sqlite:///{tmp_path}/mlflow.db")
    store.check()
    assert store.add(ended()) and len(open_store(store.location).runs()) == 1


def test_an_incomplete_database_without_runs_can_be_moved_away(tmp_path: Path, empty_database: Path) -> None:
    """Kills of earlier versions, which built in place, left such databases: "table guardrails already exists"."""
    shutil.copyfile(empty_database, tmp_path / "mlflow.db")
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as half, half:
        half.execute("DROP TABLE trace_info")
        half.execute("DELETE FROM alembic_version")
    store = open_store(f"sqlite:///{tmp_path}/mlflow.db")
    for operation in (store.check, store.runs):
        with pytest.raises(StoreError, match=r"is incomplete and contains no runs: move \S+mlflow.db away"):
            operation()


def test_has_no_runs(tmp_path: Path, mlflow_uri: str) -> None:
    assert has_no_runs(tmp_path / "mlflow.db")
    open_store(mlflow_uri).add(ended())
    assert not has_no_runs(tmp_path / "mlflow.db")
    sqlite3.connect(tmp_path / "none.db").close()
    assert has_no_runs(tmp_path / "none.db")


def test_reading_creates_nothing(tmp_path: Path) -> None:
    for uri in (f"sqlite:///{tmp_path}/mlflow.db", str(tmp_path / "runs.jsonl")):
        store = open_store(uri)
        assert store.runs() == [] and store.sweeps() == []
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_database(tmp_path: Path, mlflow_uri: str) -> None:
    """Nothing is written next to it either: no lock, no journal."""
    store = open_store(mlflow_uri)
    store.add(ended("a", {"x": 1}))
    shutil.rmtree(tmp_path / "mlruns" / ".locks")
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    reader = open_store(mlflow_uri)
    assert [run.rows for run in reader.runs()] == [({"x": 1},)] and reader.sweeps() == ["betty/fig11"]
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("name", "content"),
    [("rows.json", ""), ("rows.json", "[{"), ("rows.json", "{}"), ("config.yaml", ""), ("config.yaml", "{")],
)
def test_a_run_with_files_emptied_by_a_power_cut_is_skipped_with_a_warning(
    tmp_path: Path, mlflow_uri: str, name: str, content: str
) -> None:
    store = open_store(mlflow_uri)
    store.add(ended("a", {"x": 1}, started_at=1.0))
    (file,) = tmp_path.rglob(name)
    store.add(ended("b", {"x": 2}, started_at=2.0))
    file.write_text(content)
    with pytest.warns(UserWarning, match=rf"run \w+ is left out, its point runs again: {name} is (empty|damaged) in"):
        assert [run.rows for run in store.runs()] == [({"x": 2},)]
    run_id = store.start(make_point("a"))
    store.finish(run_id, [{"x": 3}])
    with pytest.warns(UserWarning, match="is left out"):
        assert [run.rows[0]["x"] for run in store.runs()] == [2, 3]


def test_a_run_with_unsafe_tags_is_skipped(mlflow_uri: str) -> None:
    import mlflow

    store = open_store(mlflow_uri)
    store.add(ended("a", {"x": 1}))
    client = mlflow.MlflowClient(mlflow_uri)
    with warnings.catch_warnings(record=True):
        (run,) = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    client.set_tag(run.info.run_id, "key", "../../victim")
    with pytest.warns(UserWarning, match=r"its tags are not those of a point \(.*point.key is '../../victim'"):
        assert store.runs() == []


def test_files_are_synced_before_a_run_is_finished(mlflow_uri: str, monkeypatch) -> None:
    import mlflow

    from workbench import files as atomic

    synced, at_end = [], []
    original_sync, original_end = atomic.os.fsync, mlflow.MlflowClient.set_terminated
    monkeypatch.setattr(atomic.os, "fsync", lambda fd: (synced.append(fd), original_sync(fd)))
    monkeypatch.setattr(
        mlflow.MlflowClient, "set_terminated", lambda *args: (at_end.append(len(synced)), original_end(*args))
    )
    store = open_store(mlflow_uri)
    run_id = store.start(make_point())
    after_start = len(synced)
    store.finish(run_id, [{"x": 1}])
    assert 0 < after_start < at_end[0] == len(synced)
