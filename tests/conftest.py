"""Settings required before the first import of the tested libraries, and fixtures shared by all packages."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

os.environ.update(DGLBACKEND="pytorch", MLFLOW_DISABLE_TELEMETRY="true", KINETO_LOG_LEVEL="99")
if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores; tests of thread counts set their own
    os.environ.setdefault("WORKBENCH_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples on every machine; `pytest --hypothesis-profile=explore` looks for rare counterexamples.
settings.register_profile("default", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("default")

REPEATING = (
    "tests/experiments/",
    "tests/fuzz/",
    "tests/memory/test_backend.py",
    "tests/nn/test_compile.py",
    "tests/test_interrupted.py",
    "tests/training/test_oom_exactness.py",
)
"""Tests that run what others test already. Tracing makes Python two to four times slower, so they do without."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(REPEATING):
            item.add_marker("no_cover")


@pytest.fixture(params=[1, 2, 7])
def num_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Run the test with each of these numbers of kernel threads."""
    from workbench.kernels.threads import get_num_threads, set_num_threads

    before = get_num_threads()
    set_num_threads(request.param)
    yield request.param
    set_num_threads(before)
