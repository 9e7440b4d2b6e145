"""Notebooks under test share one fresh store and draw no static images, which would need a browser."""

import os
import tempfile
from pathlib import Path

import pytest

collect_ignore = ["jupyter_config.py", "nbconvert_config.py"]


def pytest_configure(config: pytest.Config) -> None:
    """Runs before workers start, so that they and their kernels use the same store."""
    os.environ.update(
        DGLBACKEND="pytorch",
        MLFLOW_DISABLE_TELEMETRY="true",
        KINETO_LOG_LEVEL="99",
        PLOTLY_RENDERER="plotly_mimetype",
    )
    if hasattr(config, "workerinput"):  # workers share the cores
        os.environ.update(WORKBENCH_NUM_THREADS="1", OMP_NUM_THREADS="1")
        return
    from workbench.tracking.opening import open_store

    folder = tempfile.TemporaryDirectory(prefix="workbench-notebooks-")
    config.add_cleanup(folder.cleanup)
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{Path(folder.name) / 'mlflow.db'}"
    open_store().check()
