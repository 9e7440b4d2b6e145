"""Contract of every layer and normalization of DGL and PyG: parts equal the whole batch, or the module is named.

The oracle is plain autograd on the whole batch. A class without a case fails `test_every_class_has_a_case`.
"""

import inspect
from importlib import import_module
from typing import Any

import pytest
from torch import nn

from tests.training.foreign.cases import Case
from tests.training.foreign.detection import DENSITIES, Detection, batch_of, detect
from tests.training.foreign.dgl_cases import OTHER_MODULES
from tests.training.foreign.outcomes import LIBRARIES, PAGE, page

MODULES = {"dgl": "dgl", "pyg": "torch_geometric"}


def runs() -> list[Any]:
    """All cases that can be run, by library, class and options."""
    return [
        pytest.param(library, name, case, id=f"{library}-{name}-{case.options}".rstrip("-"))
        for library, (_, cases) in LIBRARIES.items()
        for name, listed in cases.items()
        for case in listed
        if case.is_run
    ]


def on_graphs() -> list[Any]:
    """The cases on a dense or a sparse graph by turns; with `-m slow` on the other one."""
    return [
        pytest.param(*run.values, density, id=f"{run.id}-{density}", marks=[pytest.mark.slow] * ((number + other) % 2))
        for number, run in enumerate(runs())
        for other, density in enumerate(DENSITIES)
    ]


@pytest.mark.parametrize(("library", "name", "case", "density"), on_graphs())
@pytest.mark.filterwarnings("ignore")
def test_parts_equal_the_whole_batch_or_the_module_is_named(library: str, name: str, case: Case, density: str) -> None:
    pytest.importorskip(MODULES[library])
    for merged in (False, True) if library == "pyg" else (case.merged,):  # adjs and edge_index
        found = detect(library, case, batch_of(density, merged=merged), merged=merged)
        assert_right(found)
        assert found.is_exact == (case.outcome == "exact"), (merged, found)
        assert found.result.exact is found.is_exact, (merged, found)
        assert found.result.kind == ("" if found.is_exact else case.named or name)
        assert found.result.module.startswith("" if found.is_exact else "layers.")


def assert_right(found: Detection) -> None:
    """Exact is never said where parts deviate, and a warning never given where they do not."""
    assert not (found.result.exact is True and not found.is_exact), found
    assert not (found.result.exact is False and found.is_exact), found


def test_every_class_of_dgl_has_a_case() -> None:
    pytest.importorskip("dgl")
    found = {}
    for name, kind in vars(import_module("dgl.nn.pytorch")).items():
        if inspect.isclass(kind) and issubclass(kind, nn.Module):
            found.setdefault(kind.__module__.split(".")[3], set()).add(name)
    assert found.pop("conv") == set(LIBRARIES["dgl"][1])
    assert set(found) <= set(OTHER_MODULES)


def test_every_class_of_pyg_has_a_case() -> None:
    pytest.importorskip("torch_geometric")
    names = [name for kind in ("conv", "norm") for name in import_module(f"torch_geometric.nn.{kind}").__all__]
    assert set(names) == set(LIBRARIES["pyg"][1])


def test_the_page_lists_these_outcomes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.training.foreign.outcomes writes the page"
