"""A folder of experiments of the test's own, with one tiny data set and a store in a file."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from workbench.experiment import point_dataset
from workbench.tracking.file_store import FileStore

INDEX = """
paper: Toys
figures: [fig1, fig2]
views: {fig2: fig1}
"""

SPEC = """
title: Squares
source: Section 1
claim: The square grows with the number.
fixed: {offset: 0}
sizes:
  smoke:
    fixed: {dataset: tiny}
    sweep: {number: [1, 2, 3]}
    deviations: {never: it is a toy}
    seeds: [0]
  real:
    fixed: {dataset: {name: absent, otherwise: {name: tiny, undirected: true}}}
    sweep:
      - {number: [1, 2], word: [a]}
      - {number: [2, 3], word: [a, b]}
    seeds: [5, 6]
    repetitions: 2
  paper:
    device: cuda
    fixed: {dataset: absent}
    sweep: {number: [1]}
reported:
  - {number: 2, square: 4, source: Section 1}
"""

CODE = """
from pathlib import Path
from typing import Literal

import pandas as pd
from pydantic import PositiveInt

from workbench.experiment.config import DataPointConfig
from workbench.experiment.finding import Finding

CALLS = Path(__file__).with_name("calls.txt")


class Config(DataPointConfig):
    number: PositiveInt
    offset: int
    word: Literal["a", "b"] = "a"


def run(config):
    with CALLS.open("a") as calls:
        calls.write(f"{config.number} {config.seed}\\n")
    if config.offset == config.number:
        raise MemoryError(f"no room\\nfor {config.number}")
    yield {"square": config.number**2 + config.offset, "nodes": config.dataset.load().graph.num_nodes}


def draw(table, reported):
    import plotly.graph_objects as go

    return go.Figure(go.Scatter(x=table.number, y=table.square))


def check(table, reported):
    return [Finding("grows", "it grows", bool(table.square.is_monotonic_increasing), str(list(table.square)))]


def compare(table, reported):
    return pd.DataFrame({"paper": [*reported.get("square", [None])], "here": [table.square.iloc[0]]})
"""

VIEW = """
title: Squares again
source: Section 2
claim: The same.
sizes: {smoke: {}}
"""


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the paper "toys": figure 1, and figure 2 as a view of it."""
    folder = tmp_path / "experiments" / "toys"
    folder.mkdir(parents=True)
    (tmp_path / "data").mkdir()
    edges = np.array([[0, 1, 2], [1, 2, 3]], np.int32)
    arrays = {
        "edge_index": edges,
        "num_nodes": np.int64(4),
        "x": np.ones((4, 2), np.float32),
        "y": np.array([0, 1, 0, 1]),
    }
    np.savez(tmp_path / "data" / "tiny.npz", **arrays)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setenv("WORKBENCH_EXPERIMENTS", str(folder.parent))
    monkeypatch.setenv("WORKBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    (folder / "index.yaml").write_text(INDEX)
    for name, spec in (("fig1", SPEC), ("fig2", VIEW)):
        (folder / f"{name}.yaml").write_text(spec)
        (folder / f"{name}.py").write_text(CODE)
    experiments = sys.modules.get("experiments")
    path = [] if experiments is None else [*experiments.__path__]
    yield folder
    if experiments is not None:
        experiments.__path__ = path  # that of loading toys is gone
    point_dataset.describe_dataset.cache_clear()


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "runs.jsonl")


@pytest.fixture
def calls(toys: Path) -> Callable[[], list[str]]:
    """Which points were run so far: "number seed" each."""

    def read() -> list[str]:
        file = toys / "calls.txt"
        return file.read_text().splitlines() if file.exists() else []

    return read
