"""Figures import shared code of their paper's package, from any folder, and notice edits of it."""

import sys
from pathlib import Path

import pytest

from workbench.experiment.figure_loader import load_experiment


@pytest.fixture
def shared(toys: Path) -> Path:
    """A module that figure 1 and figure 2 import from their paper's package."""
    (toys / "__init__.py").write_text('"""Toys."""')
    file = toys / "shared.py"
    file.write_text("FACTOR = 1\n")
    for name in ("fig1", "fig2"):
        code = (toys / f"{name}.py").read_text().replace("import pandas", "from .shared import FACTOR\nimport pandas")
        (toys / f"{name}.py").write_text(code if name == "fig1" else code.replace(".shared", "experiments.toys.shared"))
    return file


def factor(name: str) -> int:
    return load_experiment(name).module.FACTOR


def test_shared_code_is_imported_whatever_the_current_folder_is(shared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert factor("toys/fig1") == factor("toys/fig2") == 1
    module = load_experiment("toys/fig1").module
    assert module.__name__ == "experiments.toys.fig1" and sys.modules[module.__name__] is module


def test_figures_share_one_module_until_a_text_changes(shared):
    first = load_experiment("toys/fig1").module
    assert load_experiment("toys/fig1").module is first
    (shared.parent / "fig2.py").write_text((shared.parent / "fig2.py").read_text() + "\nMORE = 1\n")
    assert load_experiment("toys/fig2").module.MORE == 1


def test_an_edit_of_shared_code_is_picked_up_within_the_same_second(shared):
    for number in range(2, 9):
        shared.write_text(f"FACTOR = {number}\n")
        assert factor("toys/fig1") == factor("toys/fig2") == number


def test_a_module_that_failed_to_import_is_imported_again_after_the_edit(shared):
    shared.write_text("FACTOR = 2\nraise ValueError('broken')\n")
    with pytest.raises(ValueError, match="broken"):
        load_experiment("toys/fig1")
    shared.write_text("FACTOR = 3\n")
    assert factor("toys/fig1") == 3


def test_another_experiments_folder_has_other_modules(shared, tmp_path, monkeypatch):
    assert factor("toys/fig1") == 1
    copy = tmp_path / "copy" / "toys"
    copy.mkdir(parents=True)
    for file in shared.parent.glob("*.*"):
        (copy / file.name).write_text(file.read_text().replace("FACTOR = 1", "FACTOR = 5"))
    with monkeypatch.context() as patch:
        patch.setenv("WORKBENCH_EXPERIMENTS", str(copy.parent))
        assert factor("toys/fig1") == 5
    assert factor("toys/fig1") == 1


def test_the_repositorys_figures_share_code():
    fig2, fig10 = (load_experiment(f"betty/{name}").module for name in ("fig2", "fig10"))
    assert fig10.fig2 is fig2 and fig2.__name__ == "experiments.betty.fig2"
