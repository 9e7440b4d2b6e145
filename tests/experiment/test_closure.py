"""A point's key covers everything that `run` reaches, however late, and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.experiment import closure as module
from workbench.experiment.closure import closure, closure_digest
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.index import experiment_names

FIGURE = '''
"""A figure."""

from typing import TYPE_CHECKING

import workbench as wb
from experiments.toys.shared import measure
from workbench.core.units import format_bytes
from workbench.experiment.config import PointConfig

if TYPE_CHECKING:
    from workbench.nn.gat import GATLayer

LIMIT = 3
UNUSED = 4


class Config(PointConfig):
    number: int


def run(config):
    """Rows."""
    yield {"value": helper(config) + measure(config)}


def helper(config):
    from workbench.kernels.hash import hash_index

    return wb.redundancy, LIMIT, hash_index


def draw(table, reported):
    from workbench.plots.lines import lines

    return lines(table), format_bytes(UNUSED), wb.compare
'''
SHARED = """
import workbench.sampling.loader as stream

CALLS = []


def measure(config):
    return stream.batches, CALLS


def unrelated():
    return wb.load_dataset
"""


@pytest.fixture
def figure(tmp_path: Path) -> Path:
    folder = tmp_path / "experiments" / "toys"
    folder.mkdir(parents=True)
    (folder / "shared.py").write_text(SHARED)
    (folder / "fig1.py").write_text(FIGURE)
    return folder / "fig1.py"


def found_in(figure: Path) -> dict[str, str]:
    return closure(figure, ("run", "Config"))


def test_what_run_reaches_is_found(figure: Path) -> None:
    found = found_in(figure)
    own = {name for name in found if name.startswith("experiments.")}
    assert own == {
        *(f"experiments.toys.fig1.{name}" for name in ("run", "Config", "helper", "LIMIT")),
        *(f"experiments.toys.shared.{name}" for name in ("measure", "CALLS")),
    }
    reached = {"kernels.hash", "partition.redundancy", "sampling.loader", "experiment.config", "core.minibatch"}
    assert reached <= {name.removeprefix("workbench.") for name in found}


def test_what_it_does_not_reach_is_not(figure: Path) -> None:
    packages = {name.split(".")[1] for name in found_in(figure) if name.startswith("workbench.")}
    assert not packages & {"plots", "tracking", "report", "widgets", "cli"}
    assert "workbench.core.units" not in closure(figure, ["LIMIT"])
    assert "workbench.nn.gat" not in closure(figure, ["helper"])


@pytest.mark.parametrize(
    ("file", "old", "new", "counts"),
    [
        ("fig1.py", "return wb.redundancy, LIMIT", "return wb.redundancy, -LIMIT", True),
        ("fig1.py", "LIMIT = 3", "LIMIT = 5", True),
        ("fig1.py", "number: int", "number: float", True),
        ("fig1.py", "wb.redundancy", "wb.train_step", True),
        ("fig1.py", "UNUSED = 4", "UNUSED = 5", False),
        ("fig1.py", "return lines(table)", "return 2", False),
        ("fig1.py", '"""Rows."""', '"""Other rows."""', False),
        ("fig1.py", "LIMIT = 3", "LIMIT = 3  # a comment", False),
        ("fig1.py", "UNUSED = 4", "UNUSED = 4\nprint()", True),
        ("shared.py", "CALLS = []", "CALLS = [1]", True),
        ("shared.py", "stream.batches", "stream.prefetch", True),
        ("shared.py", "return wb.load_dataset", "return 3", False),
    ],
)
def test_edits_that_count(figure: Path, file: str, old: str, new: str, counts: bool) -> None:
    before, edited = closure_digest(found_in(figure)), figure.with_name(file)
    assert old in edited.read_text()
    edited.write_text(edited.read_text().replace(old, new))
    assert (closure_digest(found_in(figure)) != before) == counts


def test_an_edit_of_the_library_counts_where_it_is_reached(figure: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = found_in(figure)
    for edited, counts in (("kernels/hash.py", True), ("plots/lines.py", False), ("core/units.py", True)):
        monkeypatch.setattr(module, "_read_library", _edited(edited))
        changed = {name for name, digest in found_in(figure).items() if digest != before[name]}
        assert changed == ({f"workbench.{edited.removesuffix('.py').replace('/', '.')}"} if counts else set())


READ_LIBRARY = module._read_library


def _edited(edited: str):
    def read(file: Path, name: str):
        digest, imported = READ_LIBRARY(file, name)
        return ("edited" if file.as_posix().endswith(f"workbench/{edited}") else digest), imported

    return read


@pytest.mark.parametrize("statement", ["from .shared import measure", "from experiments.toys.shared import measure"])
def test_relative_imports_count_like_absolute_ones(figure: Path, statement: str) -> None:
    text = figure.read_text()
    figure.write_text(text.replace("from experiments.toys.shared import measure", statement))
    assert "experiments.toys.shared.measure" in found_in(figure)


def test_modules_that_are_imported_from_their_package_count(figure: Path) -> None:
    text = figure.read_text().replace("from experiments.toys.shared import measure", "from . import shared")
    figure.write_text(text.replace("+ measure(config)", "+ shared.measure(config)"))
    assert "experiments.toys.shared.measure" in found_in(figure)
    figure.with_name("__init__.py").write_text("print()")
    assert "experiments.toys.<module>" in found_in(figure)


@pytest.mark.parametrize("text", ['"experiments.toys.shared:unrelated"', 'f"{__name__}:check_ranks"'])
def test_functions_that_ranks_import_by_name_count(figure: Path, text: str) -> None:
    code = figure.read_text().replace("LIMIT, hash_index", f"hash_index, wb.run_ranks({text}, config, 2)")
    figure.write_text(f"{code}\n\ndef check_ranks(config):\n    return LIMIT\n")
    found = found_in(figure)
    assert "workbench.distributed.rank_child" in found, "it runs in the processes of ranks"
    if "shared" in text:
        assert {"experiments.toys.shared.unrelated", "workbench.datasets.load"} <= set(found)
    else:
        assert {"experiments.toys.fig1.check_ranks", "experiments.toys.fig1.LIMIT"} <= set(found)


def test_scripts_that_run_in_processes_of_their_own_count() -> None:
    found = closure(load_experiment("betty/fig11").file.with_suffix(".py"), ("run", "Config"))
    assert {"workbench.partition.isolated.worker", "workbench.partition.isolated.metis_program"} <= set(found)


@pytest.mark.parametrize("name", [name for name in experiment_names() if load_experiment(name).home is None])
def test_no_figure_depends_on_how_rows_are_kept_or_shown(name: str) -> None:
    packages = {part.split(".")[1] for part in load_experiment(name).code() if part.startswith("workbench.")}
    assert not packages & {"plots", "tracking", "report", "widgets", "cli"}
    assert {"core", "kernels", "datasets"} <= packages


LOADED = """
import json, sys
from workbench.experiment.figure_loader import load_experiment

experiment = load_experiment("betty/table6")
task = experiment.tasks(size="smoke")[0]
before = set(sys.modules)
list(experiment.module.run(task.config))
print(json.dumps(sorted(name for name in set(sys.modules) - before if name.startswith("workbench."))))
"""


def test_all_that_a_run_loads_is_in_the_closure() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, timeout=300)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "workbench.nn.graph_models" in loaded
    assert not set(loaded) - set(load_experiment("betty/table6").code())
