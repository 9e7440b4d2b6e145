"""Settings required before the first import of the tested libraries, and fixtures shared by all packages."""

import gc
import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from tests import without_hypothesis

if find_spec("hypothesis") is None:
    without_hypothesis.install()
from hypothesis import settings

if TYPE_CHECKING:
    from tests.simulated_cuda import SimulatedDevice
    from workbench.distributed.rank_pool import RankPool

os.environ.update(DGLBACKEND="pytorch", MLFLOW_DISABLE_TELEMETRY="true", KINETO_LOG_LEVEL="99")
os.environ.pop("COLUMNS", None)  # of the terminal that the tests were started in: output that a test reads has no width
if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores; tests of thread counts set their own
    os.environ.setdefault("WORKBENCH_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts what runs in its background with interrupts ignored, and whatever tests interrupt would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every machine, four times as many for `make test-all`;
# `pytest --hypothesis-profile=explore` looks for rare counterexamples.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("thorough", deadline=None, derandomize=True, max_examples=100)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("default")

REPEATING = (
    "tests/experiments/",
    "tests/fuzz/",
    "tests/memory/test_backend.py",
    "tests/nn/test_compile.py",
    "tests/on_cuda/",
    "tests/test_interrupted.py",
    "tests/training/foreign/",
    "tests/training/test_oom_exactness.py",
)
"""Tests that run what others test already. Tracing makes Python two to four times slower, so they do without."""

TRACED_PARAMETERS = 4
"""Of a test's parameter sets, evenly spaced, how many are traced for coverage: the others run the same lines."""


def pytest_collection() -> None:
    """Imports and tests stay: looking for garbage among them takes half of the time of a collection."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()


def pytest_sessionfinish() -> None:
    """Pytest ends with several collections, each of which would traverse all tests and libraries."""
    gc.freeze()


METERED = ("tests/meter/", "tests/memory/", "tests/training/test_oom")
"""Tests that collect garbage often; they run first, while there is little of it."""


def _place(item: pytest.Item) -> tuple[bool, bool]:
    """Of a test's place: tests of ranks run one after the other, so that one worker alone starts a pool of them."""
    return not item.nodeid.startswith(METERED), "rank_pool" not in getattr(item, "fixturenames", ())


SAMPLED_PARAMETERS = 3
"""Of the parameter sets of a grid, evenly spaced, how many `make test` runs; `make test-all` runs them all."""

SHARED_CASES = ("datasets", "experiment", "memory", "meter", "on_cuda", "standin", "training")
"""Folders where lists of models, data sets and figures, which many tests share, are sampled like grids."""

COMPLETE = ("tests/experiments/", "tests/report/", "tests/test_", "workbench/")
"""Tests whose parameters are figures, notebooks and pages, each of which is checked by itself alone."""


def _is_sampled(item: pytest.Item) -> bool:
    """Whether a test's parameter sets stand for each other: a list of cases that differ in kind is run whole."""
    parameters = getattr(getattr(item, "callspec", None), "params", ())
    shares = item.nodeid.split("/")[1] in SHARED_CASES
    return len(parameters) > (0 if shares else 1) and not item.nodeid.startswith(COMPLETE)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, sets in tests.items():
        quick = [item for item in sets if _is_sampled(item) and item.get_closest_marker("slow") is None]
        stride = -(-len(quick) // SAMPLED_PARAMETERS) or 1
        first = crc32(name.encode()) % stride  # tests with the same parameters take different ones
        for place, item in enumerate(quick):
            if place % stride != first:
                item.add_marker("slow")
        traced = () if name.startswith(REPEATING) else sets[:: -(-len(sets) // TRACED_PARAMETERS)]
        for item in sets:
            if item not in traced:
                item.add_marker("no_cover")


@pytest.fixture(autouse=True)
def gpu(request: pytest.FixtureRequest) -> "Iterator[SimulatedDevice | None]":
    """Give tests of a GPU a simulated one where there is none; its value is None for a real one, and in other tests."""
    import torch

    if request.node.get_closest_marker("cuda") is None or torch.cuda.is_available():
        yield None
        return
    from tests.simulated_cuda import simulated_cuda

    with simulated_cuda() as device:
        yield device


@pytest.fixture(scope="session", autouse=True)
def small_tests_use_several_threads() -> None:
    """Divide work among threads that would not be worth it outside tests, so that tests of thread counts stay small."""
    from workbench.kernels import gather, threads

    threads._MIN_WORK_PER_THREAD = 1 << 14
    gather._MIN_BYTES_PER_THREAD = 1 << 14


COLLECTING = ("cli", "datasets", "experiment", "experiments", "features", "report", "tracking", "widgets")
"""Folders of tests that collect garbage again and again, as each point of an experiment does before it runs."""

FREEZING = ("test_allocation_tracker.py", "test_peak_state.py")
"""Tests of how a meter looks for tensors and freezes garbage, which no fixture must do before."""


@pytest.fixture(scope="module", autouse=True)
def what_is_imported_is_no_garbage(request: pytest.FixtureRequest) -> Iterator[None]:
    """Spare collections and meters the objects of all tests and libraries, which take most of a second to traverse.

    Meters freeze older garbage, but not where the collector is frozen already: there, it must not run by itself.
    """
    if request.path.name in FREEZING:
        yield
        return
    gc.freeze()
    if request.path.relative_to(request.config.rootpath).parts[1] not in COLLECTING:
        gc.disable()
    yield
    gc.enable()
    gc.collect()
    gc.unfreeze()


@pytest.fixture(params=[1, 2, 7])
def num_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Run the test with each of these numbers of kernel threads."""
    from workbench.kernels.threads import get_num_threads, set_num_threads

    before = get_num_threads()
    set_num_threads(request.param)
    yield request.param
    set_num_threads(before)


@pytest.fixture(scope="session")
def rank_pool() -> "Iterator[RankPool]":
    """Four ranks that stay for the whole session, for tests that only need ranks; a call may use the first of them."""
    from workbench.distributed.rank_pool import RankPool

    with RankPool(4) as pool:
        yield pool
