"""What must be set before the first import of the libraries under test."""

import os

os.environ.update(DGLBACKEND="pytorch", MLFLOW_DISABLE_TELEMETRY="true", KINETO_LOG_LEVEL="99")
if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores; tests of thread counts set their own
    os.environ.setdefault("WORKBENCH_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
