"""Public names: they exist, are documented, and importing the package loads no heavy library."""

import importlib.metadata
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import workbench as wb
from tests.public_names import NAMES, NAMESPACES, ROOT, stub_of

HEAVY = ["torch", "numba", "dgl", "torch_geometric", "mlflow", "plotly", "pymetis", "mtkahypar", "scipy", "pandas"]
DATA = {"CACHE_POLICIES", "MACHINES", "MACHINE_NAMES", "PARTITION_METHODS", "PLACEMENT_METHODS"}
PANDAS_PACKAGES = ("workbench.experiment", "workbench.tracking")  # packages that may load pandas


@pytest.mark.parametrize("name", NAMES)
def test_name_resolves_and_has_a_docstring(name):
    (home, _), name = NAMES[name], name.rpartition(".")[2]
    value = getattr(home, name)
    assert name in home.__all__ and name in dir(home)
    assert name in DATA or inspect.getdoc(value), f"{name} has no docstring"
    assert name in DATA or value.__module__.startswith("workbench.")


def test_a_name_has_one_place():
    assert set(NAMESPACES) < set(wb.__all__)
    for home in NAMESPACES:
        again = {name for name in stub_of(ROOT / home) if getattr(wb, name, None) is getattr(getattr(wb, home), name)}
        assert not again, f"{again} are in workbench and in workbench.{home}"


def test_an_unknown_name_is_an_attribute_error_and_a_known_one_tells_its_place():
    with pytest.raises(AttributeError, match=r"no attribute 'GraphSampler'$"):
        _ = wb.GraphSampler  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError, match=r"it is workbench\.outofcore\.PartitionBuffer"):
        _ = wb.PartitionBuffer  # pyright: ignore[reportAttributeAccessIssue]


def test_every_name_of_the_documents_is_found_in_a_new_process():
    """Each alone, since whatever imports a package of `workbench` makes it an attribute."""
    root = Path(inspect.getfile(wb)).parent.parent
    texts = [path.read_text(encoding="utf-8") for path in (root / "README.md", *root.glob("docs/**/*.md"))]
    names = sorted({name for text in texts for name in re.findall(r"\bwb\.(\w+)", text)})
    assert len(names) > 50 and "interop" in names
    assert loaded_after("import workbench as wb", f"n for n in {names} if not hasattr(wb, n)") == set()
    assert loaded_after("import workbench as wb; wb.interop.count_hops") <= {"torch", "numba", "scipy"}


def loaded_after(code: str, shown: str = f"m for m in {HEAVY} if m in sys.modules") -> set[str]:
    script = f"import sys; {code}; print(*({shown}))"
    env = os.environ | {"PYTHONPATH": str(Path(inspect.getfile(wb)).parent.parent)}
    result = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_the_version_is_that_of_the_package(monkeypatch):
    assert wb.__version__ == importlib.metadata.version("gnn-workbench")

    def not_installed(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", not_installed)
    assert wb.__version__ == "0+uninstalled"


def test_import_loads_no_library():
    assert loaded_after("import workbench") == set()


def test_names_load_only_what_the_core_needs():
    core = [n for n, (home, module) in NAMES.items() if not f"{home.__name__}.{module}".startswith(PANDAS_PACKAGES)]
    loaded = loaded_after(f"from operator import attrgetter; import workbench as wb; attrgetter(*{core})(wb)")
    assert loaded <= {"torch", "numba", "scipy"}  # numba looks up scipy's version


def test_a_rank_watches_its_parent_before_it_loads_a_library():
    assert loaded_after("import workbench.distributed.rank_child") == set()
