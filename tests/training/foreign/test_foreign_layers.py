"""Contract of every layer and normalization of DGL and PyG: parts equal the whole batch, or the module is named.

The oracle is plain autograd on the whole batch. A class without a case fails `test_every_class_has_a_case`.
"""

import inspect
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import workbench as wb
from tests.training.foreign.cases import NUM_EDGES, NUM_NODES, NUM_TYPES, Case, Network, X, forward_of
from tests.training.foreign.dgl_cases import OTHER_MODULES
from tests.training.foreign.outcomes import LIBRARIES, PAGE, page
from tests.training.toys import gradients, relative_difference

MODULES = {"dgl": "dgl", "pyg": "torch_geometric"}
TOLERANCE = 1e-10
NUM_SEEDS = 24
COEFFICIENTS = torch.linspace(-5, 5, NUM_SEEDS, dtype=torch.float64).cos()[:, None]


@cache
def batches() -> dict[bool, wb.MiniBatch]:
    """A batch of two layers by whether every node has one sample; all nodes have in-edges, which DGL asks for."""
    generator = torch.Generator().manual_seed(3)
    hubs = (NUM_NODES * torch.rand(NUM_EDGES - 2 * NUM_NODES, generator=generator) ** 2).long()
    graph = wb.Graph.from_edges(
        torch.randint(NUM_NODES, (NUM_EDGES,), generator=generator),
        torch.cat([torch.arange(NUM_NODES).repeat(2), hubs]),
        num_nodes=NUM_NODES,
        edge_weight=0.1 + torch.rand(NUM_EDGES, generator=generator, dtype=torch.float64),
        edge_type=torch.randint(NUM_TYPES, (NUM_EDGES,), generator=generator),
    )
    layered = wb.NeighborSampler([3, 3], edge_ids=True).sample(graph, torch.arange(NUM_SEEDS))
    return {False: layered, True: wb.MiniBatch.from_pyg(layered.to_pyg("edge_index"))}


def runs() -> list[Any]:
    """All cases that can be run, by library, class and options."""
    return [
        pytest.param(library, name, case, id=f"{library}-{name}-{case.options}".rstrip("-"))
        for library, (_, cases) in LIBRARIES.items()
        for name, listed in cases.items()
        for case in listed
        if case.is_run
    ]


def deviation(model: nn.Module, mb: wb.MiniBatch, forward: Callable[..., Tensor], dtype: torch.dtype) -> float:
    """By how much outputs or gradients of four parts differ from those of the whole batch."""

    def run(part: wb.MiniBatch, weight: Tensor) -> Tensor:
        out = forward(part, wb.Inputs(X[part.node_ids].to(dtype)))
        (out * weight.to(dtype)).sum().backward()
        return out.detach()

    model.zero_grad()
    whole, outputs = run(mb, COEFFICIENTS), []
    expected = gradients(model)
    model.zero_grad()
    for part in mb.split(torch.arange(NUM_SEEDS) % 4):
        assert part.parent is not None
        seeds = part.parent[: part.num_seeds]
        outputs.append(relative_difference(run(part, COEFFICIENTS[seeds]), whole[seeds]))
    return max(*outputs, relative_difference(gradients(model), expected))


def without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


@pytest.mark.parametrize(("library", "name", "case"), runs())
@pytest.mark.filterwarnings("ignore")
def test_parts_equal_the_whole_batch_or_the_module_is_named(library: str, name: str, case: Case) -> None:
    pytest.importorskip(MODULES[library])
    torch.manual_seed(0)
    model = without_dropout(Network(case, library).to(case.dtype))
    for merged in (False, True) if library == "pyg" else (case.merged,):  # adjs and edge_index
        mb, forward = batches()[merged], forward_of(model, library, merged=merged)
        deviates = deviation(model, mb, forward, case.dtype)
        assert (deviates <= TOLERANCE) if case.outcome == "exact" else (deviates > 1e-5)
    result = wb.check_exact(model, mb, x=X[mb.node_ids].to(case.dtype), forward=forward)
    assert result.exact == (case.outcome == "exact"), result
    assert result.kind == ("" if result.exact else name)
    assert result.module.startswith("" if result.exact else "layers.")


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
