"""Stores in temporary folders. The database is created once and copied, because creating one takes seconds."""

import shutil
from pathlib import Path

import pytest

from workbench.tracking.opening import open_store
from workbench.tracking.store import Store


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mlflow")
    file = tmp_path_factory.mktemp("store") / "mlflow.db"
    open_store(f"sqlite:///{file}").check()
    return file


@pytest.fixture
def mlflow_uri(tmp_path: Path, empty_database: Path) -> str:
    shutil.copyfile(empty_database, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture
def mlflow_store(mlflow_uri: str) -> Store:
    return open_store(mlflow_uri)


@pytest.fixture(params=["mlflow", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Run the test with each kind of store."""
    if request.param == "mlflow":
        return request.getfixturevalue("mlflow_store")
    return open_store(tmp_path / "runs.jsonl")
