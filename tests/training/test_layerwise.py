"""Layer-wise inference of models of one's own equals their outputs on full-neighbour batches."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.strategies import random_graph
from tests.training.toys import PlainModel
from workbench.core.graph import Graph
from workbench.features.memory_rows import MappedRows
from workbench.nn.losses import Inputs
from workbench.nn.signature import default_forward
from workbench.sampling.neighbor import FullNeighborSampler
from workbench.training.evaluate import layerwise

GRAPH = random_graph(50, 250, seed=3)
X = torch.linspace(-9, 9, 200, dtype=torch.float64).sin().view(50, 4)
NODES = torch.tensor([7, 3, 49, 0])


def expected(model: nn.Module, nodes: Tensor) -> Tensor:
    """The outputs on one batch of all neighbours."""
    mb = FullNeighborSampler(2).sample(GRAPH, nodes)
    return default_forward(model)(mb, Inputs(X[mb.node_ids])).detach()


@pytest.mark.parametrize("chunk_edges", [1, 40, 1000])
@pytest.mark.parametrize("nodes", [None, NODES])
def test_functions_of_blocks(nodes: Tensor | None, chunk_edges: int) -> None:
    model = PlainModel().double()
    first, second = model.layers
    layers = [lambda block, h: first(block, h).tanh(), second]
    out = layerwise(GRAPH, X, layers, nodes=nodes, chunk_edges=chunk_edges)
    assert not out.requires_grad
    assert torch.allclose(out, expected(model, torch.arange(50) if nodes is None else nodes), rtol=1e-12)


@pytest.mark.parametrize("nodes", [None, NODES])
def test_outputs_in_a_folder_are_those_in_memory(nodes: Tensor | None, tmp_path: Path) -> None:
    model = PlainModel().double()
    layers = [lambda block, h: model.layers[0](block, h).tanh(), model.layers[1]]
    GRAPH.save(tmp_path / "graph")
    rows = MappedRows.create(tmp_path / "x", X)
    for _ in range(2):  # the second call replaces the files of the first
        out = layerwise(Graph.open(tmp_path / "graph"), rows, layers, nodes=nodes, chunk_edges=40, folder=tmp_path)
        assert torch.equal(out, layerwise(GRAPH, X, layers, nodes=nodes, chunk_edges=40))
        assert torch.equal(MappedRows(tmp_path / "layer1").read(torch.arange(len(out))), out)


def test_layers_of_dgl() -> None:
    conv = pytest.importorskip("dgl.nn").SAGEConv

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([conv(4, 5, "pool"), conv(5, 3, "mean")])

        def forward(self, blocks: Any, x: Tensor) -> Tensor:
            for layer, block in zip(self.layers, blocks, strict=True):
                x = layer(block, x)
            return x

    model = Net().double()
    out = layerwise(GRAPH, X, model.layers, nodes=NODES, form="dgl", chunk_edges=30)  # pyright: ignore
    assert torch.allclose(out, expected(model, NODES), rtol=1e-12)


def test_layers_of_pyg() -> None:
    conv = pytest.importorskip("torch_geometric.nn").SAGEConv

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([conv((4, 4), 5), conv((5, 5), 3)])

        def forward(self, x: Tensor, adjs: list) -> Tensor:
            for layer, (edge_index, _, (_, count)) in zip(self.layers, adjs, strict=True):
                x = layer((x, x[:count]), edge_index)
            return x

    model = Net().double()
    out = layerwise(GRAPH, X, list(model.layers), nodes=NODES, form="pyg", chunk_edges=30)
    assert torch.allclose(out, expected(model, NODES), rtol=1e-12)


@pytest.mark.parametrize(
    ("layers", "options", "error", "message"),
    [
        ([], {}, ValueError, "layers is empty; pass one function per layer"),
        (nn.Linear(4, 4), {}, TypeError, "layers is a Linear; pass a list of functions"),
        ([3], {}, TypeError, r"layers\[0\] is a int; pass a function of \(block, h\)"),
        ([lambda block, h: h], {}, ValueError, r"a layer returned shape \(50, 4\) for 4 destinations"),
        ([lambda block, h: (h,)], {}, TypeError, "the output of a layer is a tuple; return one tensor"),
        ([lambda block, h: h], {"form": "csc"}, ValueError, "form 'csc' is not known; choose from block, dgl, pyg"),
    ],
)
def test_what_is_refused(layers: Any, options: dict, error: type[Exception], message: str) -> None:
    graph = random_graph(50, 2500, seed=3)  # where few nodes reach all others
    with pytest.raises(error, match=message):
        layerwise(graph, X, layers, nodes=NODES, **options)
