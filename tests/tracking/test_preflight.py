"""Unusable stores are reported immediately, with a remedy."""

import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from workbench.tracking.database import check_writable
from workbench.tracking.opening import open_store
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
