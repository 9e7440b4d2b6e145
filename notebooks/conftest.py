"""Notebooks under test share fresh stores and draw no static images, which would need a browser."""

import csv
import os
import tempfile
from pathlib import Path

import pytest

from tests import warm_kernels

collect_ignore = ["jupyter_config.py", "nbconvert_config.py"]


def pytest_configure(config: pytest.Config) -> None:
    """Runs before workers start, so that they and their kernels use the same store."""
    os.environ.update(
        DGLBACKEND="pytorch",
        MLFLOW_DISABLE_TELEMETRY="true",
        KINETO_LOG_LEVEL="99",
        PLOTLY_RENDERER="plotly_mimetype",
        WORKBENCH_NUM_THREADS="1",  # workers share the cores, and a pool of OpenMP threads does not survive the fork
        OMP_NUM_THREADS="1",  # of a kernel, which would wait for it forever
    )
    warm_kernels.install()
    if hasattr(config, "workerinput"):
        return
    from workbench.tracking.opening import open_store

    folder = tempfile.TemporaryDirectory(prefix="workbench-notebooks-")
    config.add_cleanup(folder.cleanup)
    os.environ["WORKBENCH_NOTEBOOK_STORES"] = folder.name
    open_store(store_uri(mlflow=True)).check()


def store_uri(*, mlflow: bool) -> str:
    """The MLflow store or the file store of this test run."""
    folder = os.environ["WORKBENCH_NOTEBOOK_STORES"]
    return f"sqlite:///{folder}/mlflow.db" if mlflow else f"{folder}/runs.jsonl"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long sweeps first, views of one sweep last: no worker waits for the end of another's sweep."""
    seconds: dict[str, float] = {}
    for file in (Path(__file__).parents[1] / "experiments" / "results").glob("*/smoke-seconds.csv"):
        with file.open(encoding="utf-8") as rows:
            seconds |= {row["sweep"]: float(row["seconds"]) for row in csv.DictReader(rows)}
    items.sort(key=lambda item: -seconds.get(f"{item.path.parent.name}/{item.path.stem}", 0.0))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """The kernel starts after this. Only the introductions use MLflow, whose import takes longer than most figures."""
    os.environ["MLFLOW_TRACKING_URI"] = store_uri(mlflow=item.path.parent.name == "notebooks")
