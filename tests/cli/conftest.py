"""The toy experiments, a database that is created once, and the command on both."""

import pytest

from tests.toy_experiments import calls as calls, store as store, toys as toys
from tests.tracking.conftest import empty_database as empty_database
from workbench.cli import main


@pytest.fixture
def run(toys, tmp_path, capsys, monkeypatch):
    """Runs a command on the toys; returns status, stdout and stderr. The store is the test's own."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)  # with which no table is recorded

    def call(*arguments, store=True):
        where = ["--store", str(tmp_path / "runs.jsonl")] if store else []
        status = main([*map(str, arguments), *where])
        out, err = capsys.readouterr()
        return status, out, err

    return call
