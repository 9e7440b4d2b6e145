"""Failures at every step of a run, on every store: one message, no loss of data, and the run can be resumed."""

import errno
import resource
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.covering import chessboard
from tests.tracking.failures import serve
from tests.tracking.points import ended, make_point
from workbench.tracking import store as locks
from workbench.tracking.file_store import FileStore
from workbench.tracking.opening import open_store
from workbench.tracking.record import FAILED, FINISHED, KILLED, RUNNING
from workbench.tracking.store import Store, StoreError

mlflow = pytest.importorskip("mlflow")

ALL = (RUNNING, FINISHED, FAILED, KILLED)


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def one_line(problem: StoreError) -> str:
    text = str(problem)
    assert "\n" not in text and len(text) < 700
    return text


REFUSED = mlflow.exceptions.RestException({"error_code": "PERMISSION_DENIED", "message": "not you"})
LOCKED = mlflow.exceptions.MlflowException("(sqlite3.OperationalError) database is locked\n[SQL: INSERT]")
FULL = OSError(errno.ENOSPC, "No space left on device")
SLOW = mlflow.exceptions.MlflowException("API request failed with timeout exception")

STEPS = {  # of a run: the call that fails
    "start": "create_run",
    "parameters": "log_batch",
    "inputs": "log_inputs",
    "read": "get_run",
    "end": "set_terminated",
}


ERRORS = {"refused": REFUSED, "locked": LOCKED, "full": FULL, "slow": SLOW}


@pytest.mark.parametrize(("step", "kind"), chessboard(STEPS, ERRORS))
def test_a_step_that_fails(mlflow_store: Store, monkeypatch, step: str, kind: str) -> None:
    error = ERRORS[kind]
    with monkeypatch.context() as patch:
        patch.setattr(mlflow.MlflowClient, STEPS[step], failing(error))
        with pytest.raises(StoreError) as caught:
            mlflow_store.finish(mlflow_store.start(make_point()), [{"x": 1}])
        assert "mlflow.db can't be used" in one_line(caught.value)
        with pytest.raises(StoreError):
            mlflow_store.fail(mlflow_store.start(make_point()), "no memory")
    assert mlflow_store.runs() == []
    mlflow_store.finish(mlflow_store.start(make_point()), [{"x": 1}])
    assert [run.rows for run in open_store(mlflow_store.location).runs()] == [({"x": 1},)]


@pytest.mark.parametrize("name", ["config.yaml", "rows.json"])
def test_an_artifact_that_does_not_fit_on_the_disk(mlflow_store: Store, monkeypatch, name: str) -> None:
    from workbench.tracking import store as artifacts

    own = artifacts.write_file
    with monkeypatch.context() as patch:
        patch.setattr(
            artifacts, "write_file", lambda file, *args: failing(FULL)() if file.name == name else own(file, *args)
        )
        with pytest.raises(StoreError, match=r"can't be used; free space there, or set MLFLOW_TRACKING_URI"):
            mlflow_store.finish(mlflow_store.start(make_point()), [{"x": 1}])
    assert mlflow_store.runs() == []


def test_a_database_locked_by_another_process(mlflow_store: Store, tmp_path: Path, monkeypatch) -> None:
    from workbench.tracking import preflight as database

    monkeypatch.setattr(database, "_WAIT_SECONDS", 0.05)
    with closing(sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match=r"can't be written \(database is locked\); end the process that holds it"):
            mlflow_store.check()
        with pytest.raises(StoreError, match=r"can't be read \(database is locked\); end the process that holds it"):
            mlflow_store.runs()


@pytest.mark.slow
def test_a_database_locked_during_a_run(mlflow_store: Store, tmp_path: Path) -> None:
    run_id = mlflow_store.start(make_point())
    with closing(sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match=r"end the process that holds it, .*database is locked"):
            mlflow_store.finish(run_id, [{"x": 1}])
    mlflow_store.finish(run_id, [{"x": 1}])
    assert len(mlflow_store.runs()) == 1


def test_a_full_database(mlflow_store: Store, monkeypatch) -> None:
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    from workbench.tracking.mlflow_store import _disconnect

    run_id = mlflow_store.start(make_point())

    def limit(connection: Any, *_: object) -> None:
        connection.execute("PRAGMA max_page_count = 1")  # the least it takes is what the file has

    _disconnect(mlflow_store._client)  # pyright: ignore[reportAttributeAccessIssue]
    event.listen(Engine, "connect", limit)
    try:
        with pytest.raises(StoreError, match=r"can't be used; free space there.*database or disk is full"):
            mlflow_store.finish(run_id, [{"epoch": n, "loss": 1.0} for n in range(5000)])
    finally:
        event.remove(Engine, "connect", limit)
        _disconnect(mlflow_store._client)  # pyright: ignore[reportAttributeAccessIssue]
    assert mlflow_store.runs() == []
    mlflow_store.finish(run_id, [{"x": 1}])
    assert len(mlflow_store.runs()) == 1


def test_a_database_deleted_during_a_run(mlflow_store: Store, tmp_path: Path, empty_database: Path) -> None:
    """An open connection would keep writing to the deleted file."""
    run_id = mlflow_store.start(make_point())
    (tmp_path / "mlflow.db").unlink()
    with pytest.raises(StoreError, match=r"mlflow\.db was deleted or replaced while it was in use"):
        mlflow_store.finish(run_id, [{"x": 1}])
    assert not (tmp_path / "mlflow.db").exists()
    (tmp_path / "mlflow.db").write_bytes(empty_database.read_bytes())
    mlflow_store.finish(mlflow_store.start(make_point()), [{"x": 2}])
    assert [run.rows for run in open_store(mlflow_store.location).runs()] == [({"x": 2},)]


def test_a_database_deleted_during_a_write_is_detected(mlflow_store: Store, tmp_path, monkeypatch) -> None:
    run_id = mlflow_store.start(make_point())
    own = mlflow.MlflowClient.set_terminated

    def end(*args: Any) -> None:
        own(*args)
        (tmp_path / "mlflow.db").unlink()

    monkeypatch.setattr(mlflow.MlflowClient, "set_terminated", end)
    with pytest.raises(StoreError, match="was deleted or replaced"):
        mlflow_store.finish(run_id, [{"x": 1}])


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time out after one second instead of ten, without retries."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


OPERATIONS: dict[str, Callable[[Store], object]] = {
    "check": lambda store: store.check(),
    "runs": lambda store: store.runs(),
    "sweeps": lambda store: store.sweeps(),
    "start": lambda store: store.start(make_point()),
    "finish": lambda store: store.finish("0" * 32, [{"x": 1}]),
    "fail": lambda store: store.fail("0" * 32, "no memory"),
    "orphans": lambda store: store.close_orphans(),
    "add": lambda store: store.add(ended()),
    "summary": lambda store: store.log_summary("betty/fig12", "betty/fig11", "smoke", "a", {}),
    "has summary": lambda store: store.has_summary("betty/fig12", "betty/fig11", "smoke", "a"),
}


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("failure", ["refused", "500", "no MLflow"])
def test_a_server_that_fails(failure: str, tmp_path: Path, monkeypatch, caplog) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    with serve(failure) as uri:
        for operation in OPERATIONS.values():
            with pytest.raises(StoreError) as caught:
                operation(open_store(uri, root=tmp_path))
            assert "can't be used; start the server" in one_line(caught.value) and "secret" not in str(caught.value)
    assert caplog.records == []


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("operation", ["start", "finish"])
def test_a_server_that_never_answers(operation: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    with serve("slow") as uri, pytest.raises(StoreError, match=r"start the server.*timed out"):
        OPERATIONS[operation](open_store(uri, root=tmp_path))


def test_mlflow_gives_up_within_a_minute(monkeypatch) -> None:
    """The limit covers all retries of a request and the pauses between them; no request is repeated."""
    from mlflow.environment_variables import (
        MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR,
        MLFLOW_HTTP_REQUEST_BACKOFF_JITTER,
        MLFLOW_HTTP_REQUEST_MAX_RETRIES,
        MLFLOW_HTTP_REQUEST_TIMEOUT,
    )

    tries = MLFLOW_HTTP_REQUEST_MAX_RETRIES.get() + 1
    pauses = [
        MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR.get() * 2**n + MLFLOW_HTTP_REQUEST_BACKOFF_JITTER.get() for n in range(tries)
    ]
    assert tries * MLFLOW_HTTP_REQUEST_TIMEOUT.get() + sum(pauses[:-1]) < 60


@pytest.fixture
def file_store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "folder" / "runs.jsonl")


@pytest.mark.parametrize("written", [0, 1, 40, 10_000])
@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()], ids=["full", "interrupted"])
def test_a_line_that_does_not_fit(file_store: FileStore, monkeypatch, written: int, error: BaseException) -> None:
    from workbench.tracking import file_store as module

    file_store.add(ended("a", {"x": 1}, started_at=1.0))
    before = Path(file_store.location).read_bytes()
    run_id = file_store.start(make_point("b"))
    with monkeypatch.context() as patch:

        def write(file: Any, line: bytes) -> None:
            file.write(line[:written])
            raise error

        patch.setattr(module, "_write", write)
        with pytest.raises(StoreError if error is FULL else KeyboardInterrupt):
            file_store.finish(run_id, [{"x": 2}])
    assert Path(file_store.location).read_bytes() == before
    file_store.finish(run_id, [{"x": 2}])
    assert [run.rows[0]["x"] for run in FileStore(file_store.location).runs()] == [1, 2]


def test_a_file_with_a_size_limit(file_store: FileStore) -> None:
    """The system writes a part of the line and rejects the rest."""
    file_store.add(ended("a", {"x": 1}, started_at=1.0))
    before = Path(file_store.location).read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))
    try:
        with pytest.raises(StoreError, match=r"can't be used \(File too large\); free space"):
            file_store.add(ended("b", {"x": 2}, started_at=2.0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert Path(file_store.location).read_bytes() == before
    assert file_store.add(ended("b", {"x": 2}, started_at=2.0))


def test_a_folder_deleted_during_a_run_is_recreated(file_store: FileStore) -> None:
    import shutil

    run_id = file_store.start(make_point())
    file_store.check()
    shutil.rmtree(Path(file_store.location).parent)
    file_store.finish(run_id, [{"x": 1}])
    assert len(file_store.runs()) == 1


def test_a_folder_that_becomes_a_file(file_store: FileStore) -> None:
    run_id = file_store.start(make_point())
    Path(file_store.location).parent.write_text("")
    for operation in (lambda: file_store.finish(run_id, []), lambda: file_store.fail(run_id, "e"), file_store.check):
        with pytest.raises(StoreError, match=r"runs\.jsonl can't be used"):
            operation()
    with pytest.raises(StoreError), file_store.lock("a"):
        raise AssertionError


def test_a_file_locked_by_a_stopped_process(file_store: FileStore, monkeypatch) -> None:
    monkeypatch.setattr(locks, "LOCK_SECONDS", 0.1)
    run_id = file_store.start(make_point())
    held = locks.lock_with_timeout(file_store._locks / "append")
    with held, pytest.raises(StoreError, match=r"is locked: another process has held append for 0 s; end it"):
        file_store.finish(run_id, [{"x": 1}])
    file_store.finish(run_id, [{"x": 1}])
    assert len(file_store.runs()) == 1


def test_errors_of_the_caller_propagate(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.lock("a"):
        raise ZeroDivisionError
    with pytest.raises(FileNotFoundError), store.lock("a"):
        raise FileNotFoundError("of the caller")
    with store.lock("a") as mine:
        assert mine
