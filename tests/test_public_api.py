"""Public names: they exist, are documented, and importing the package loads no heavy library."""

import ast
import importlib.metadata
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import workbench as wb

HEAVY = ["torch", "numba", "dgl", "torch_geometric", "mlflow", "plotly", "pymetis", "mtkahypar", "scipy", "pandas"]
DATA = {"CACHE_POLICIES", "MACHINES", "PARTITION_METHODS", "PLACEMENT_METHODS"}
PANDAS_PACKAGES = ("workbench.experiment", "workbench.tracking")  # packages that may load pandas


@pytest.mark.parametrize("name", wb.__all__)
def test_name_resolves_and_has_a_docstring(name):
    value = getattr(wb, name)
    assert name in DATA or inspect.getdoc(value), f"{name} has no docstring"
    assert name in DATA or value.__module__.startswith("workbench.")


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(inspect.getfile(wb)).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    static = {a.asname: node.module for node in imports for a in node.names if a.asname}
    assert static == wb._MODULE_OF


def test_dir_lists_names_and_unknown_ones_are_attribute_errors():
    assert set(wb.__all__) <= set(dir(wb))
    with pytest.raises(AttributeError, match="no attribute 'GraphSampler'"):
        _ = wb.GraphSampler


def loaded_after(code: str) -> set[str]:
    script = f"import sys; {code}; print(*(m for m in {HEAVY} if m in sys.modules))"
    env = os.environ | {"PYTHONPATH": str(Path(inspect.getfile(wb)).parent.parent)}
    result = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_the_version_is_that_of_the_package(monkeypatch):
    assert wb.__version__ == importlib.metadata.version("gnn-workbench")
    assert "__version__" in dir(wb)

    def not_installed(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", not_installed)
    assert wb.__version__ == "0+uninstalled"


def test_import_loads_no_library():
    assert loaded_after("import workbench") == set()


def test_names_load_only_what_the_core_needs():
    core = [name for name, module in wb._MODULE_OF.items() if not module.startswith(PANDAS_PACKAGES)]
    loaded = loaded_after(f"import workbench as wb; [getattr(wb, n) for n in {core}]")
    assert loaded <= {"torch", "numba", "scipy"}  # numba looks up scipy's version


def test_a_rank_watches_its_parent_before_it_loads_a_library():
    assert loaded_after("import workbench.distributed.rank_child") == set()
