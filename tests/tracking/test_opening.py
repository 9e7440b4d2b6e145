"""Opening stores by tracking URI."""

import importlib.util
from pathlib import Path

import pytest

from workbench.paths import project_root
from workbench.tracking import store as uri
from workbench.tracking.file_store import FileStore
from workbench.tracking.opening import open_store
from workbench.tracking.store import StoreError, shown_uri, tracking_uri


@pytest.fixture(autouse=True)
def no_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def with_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uri, "has_mlflow", lambda: True)


@pytest.fixture
def without_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *args: None if name == "mlflow" else found(name))


@pytest.mark.usefixtures("with_mlflow")
def test_the_default_is_a_database_in_the_root_for_any_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tracking_uri() == f"sqlite:///{project_root()}/mlflow.db"
    assert (project_root() / "workbench" / "tracking").is_dir()
    assert tracking_uri(root=Path("below")) == f"sqlite:///{tmp_path}/below/mlflow.db"


@pytest.mark.usefixtures("without_mlflow")
def test_without_mlflow_the_default_is_a_file(tmp_path: Path) -> None:
    found = open_store(root=tmp_path)
    assert isinstance(found, FileStore) and found.location == str(tmp_path / "runs.jsonl")
    with pytest.raises(StoreError, match=r"MLflow is not installed; .*\.jsonl"):
        open_store(f"sqlite:///{tmp_path}/mlflow.db")


def test_the_environment_is_used_unless_a_uri_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://10.0.0.1:5000")
    assert tracking_uri() == tracking_uri(root=tmp_path) == "http://10.0.0.1:5000"
    assert tracking_uri(f"{tmp_path}/x.jsonl") == f"{tmp_path}/x.jsonl"


def test_a_jsonl_file_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert tracking_uri("runs.jsonl") == str(tmp_path / "runs.jsonl")


@pytest.mark.parametrize("uri", ["sqlite:///mlflow.db", "sqlite://", "sqlite:///:memory:"])
def test_relative_databases_are_rejected(uri: str) -> None:
    with pytest.raises(StoreError, match=r"relative to the current folder; write sqlite:////absolute"):
        open_store(uri)


@pytest.mark.parametrize("uri", ["mlruns", "/tmp/mlruns", "file:///tmp/mlruns", "databricks"])
def test_folders_are_rejected(uri: str) -> None:
    with pytest.raises(StoreError, match="is not a store: write sqlite:////"):
        open_store(uri)


def test_opening_creates_nothing(tmp_path: Path) -> None:
    open_store(root=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://me:pa@ss@host:5000/x", "http://me:***@host:5000/x"),
        (
            "postgresql+psycopg2://me:secret@host/db?sslpassword=s&x=1",
            "postgresql+psycopg2://me:***@host/db?sslpassword=***&x=1",
        ),
        ("http://host/?Token=abc", "http://host/?Token=***"),
        ("http://host:5000/a@b", "http://host:5000/a@b"),
        ("sqlite:////a:b/c@d.db", "sqlite:////a:b/c@d.db"),
        ("told by http://a:b@c and http://d:e@f: no", "told by http://a:***@c and http://d:***@f: no"),
    ],
)
def test_passwords_are_not_shown(uri: str, shown: str) -> None:
    assert shown_uri(uri) == shown


@pytest.mark.parametrize(
    "uri", ["http://me:secret@127.0.0.1:1", "ftp:me:secret", "file://me:secret@host/x", "sqlite://me:secret@x/y"]
)
def test_no_message_shows_a_password(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    with pytest.raises(StoreError) as caught:
        open_store(uri, root=tmp_path).check()
    assert "secret@" not in str(caught.value)
