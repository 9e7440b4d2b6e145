"""Models of DGL's and PyG's layers: calls that names do not tell, edge data, and what can't be called at all."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import workbench as wb
from tests.strategies import random_graph, random_minibatch
from workbench.nn.signature import default_forward

MERGED = wb.MiniBatch.from_pyg(
    random_minibatch(random_graph(200, 1500), fanouts=(4, 4), num_seeds=30).to_pyg("edge_index")
)


class Stack(nn.Module):
    """Two layers of PyG."""

    def __init__(self, kind: str = "GCNConv", **options: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            getattr(pytest.importorskip("torch_geometric.nn"), kind)(4, 4, **options) for _ in "ab"
        )

    def apply_all(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index).sin()
        return x


class OtherNames(Stack):
    def forward(self, x: Tensor, ei: Tensor) -> Tensor:
        return self.apply_all(x, ei)


class UnknownNames(Stack):
    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return self.apply_all(first, second)


class EdgesFirst(Stack):
    def forward(self, edges: Tensor, feat: Tensor) -> Tensor:
        return self.apply_all(feat, edges)


class ByPosition(Stack):
    def forward(self, x: Tensor, edge_index: Tensor, /) -> Tensor:
        return self.apply_all(x, edge_index)


class OfBatch(Stack):
    def forward(self, data: Any) -> Tensor:
        return self.apply_all(data.x, data.edge_index)


class PerLayer(Stack):
    def forward(self, h: Tensor, sampled: Any) -> Tensor:
        for layer, (edge_index, _, size) in zip(self.layers, sampled, strict=True):
            h = layer((h, h[: size[1]]), edge_index).sin()
        return h


@pytest.mark.parametrize("kind", [OtherNames, UnknownNames, EdgesFirst, ByPosition, OfBatch])
def test_parameters_may_have_any_names_and_order(kind: type[Stack]) -> None:
    x = torch.randn(MERGED.num_inputs, 4)
    model = kind("SAGEConv")
    assert wb.check_exact(model, MERGED).exact is True
    assert wb.check_exact(kind(), MERGED).kind == "GCNConv"
    if kind is not OfBatch:
        expected = model.apply_all(x, MERGED.to_pyg().edge_index)[: MERGED.num_seeds]
        torch.testing.assert_close(default_forward(model)(MERGED, wb.Inputs(x)), expected)


def test_a_parameter_that_is_gone_through_gets_the_edges_of_each_layer() -> None:
    mb, model = random_minibatch(random_graph(200, 1500), fanouts=(4, 4), num_seeds=30), PerLayer("SAGEConv")
    x = torch.randn(mb.num_inputs, 4)
    torch.testing.assert_close(default_forward(model)(mb, wb.Inputs(x)), model(x, mb.to_pyg().adjs))
    assert wb.check_exact(model, mb).exact is True


def test_cached_layers_are_refused_by_name() -> None:
    model = OtherNames(cached=True)
    with pytest.raises(ValueError, match=r"GCNConv \(layers.0\) has cached=True: .* build it with cached=False"):
        default_forward(model)(MERGED, wb.Inputs(torch.randn(MERGED.num_inputs, 4)))
    result = wb.check_exact(model, MERGED)
    assert (result.exact, result.module) == (False, "layers.0") and "build it with cached=False" in result.reason


def test_the_module_inside_a_layer_is_named() -> None:
    nn_pyg = pytest.importorskip("torch_geometric.nn")

    class Gin(nn.Module):
        def __init__(self, between: nn.Module) -> None:
            super().__init__()
            self.l = nn.ModuleList([nn_pyg.GINConv(nn.Sequential(nn.Linear(4, 4), between, nn.Linear(4, 4)))])

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.l[0](x, edge_index)

    for between in (nn.BatchNorm1d(4), nn.Softmax(dim=0)):
        result = wb.check_exact(Gin(between), MERGED)
        assert (result.module, result.kind) == ("l.0.nn.1", type(between).__name__)
    assert wb.check_exact(Gin(nn.BatchNorm1d(4)).eval(), MERGED).exact is True


def with_edge_data() -> Any:
    dgl = pytest.importorskip("dgl")
    generator = torch.Generator().manual_seed(0)
    graph = dgl.graph(tuple(torch.randint(200, (2, 3000), generator=generator)), num_nodes=200)
    graph.edata["feat"], graph.ndata["feat"] = torch.randn(3000, 3), torch.randn(200, 4)
    return dgl.dataloading.NeighborSampler([4, 4]).sample(graph, torch.arange(40))[2]


class WithEdges(nn.Module):
    """Layers of DGL that read edge data, after an encoder of it that is defined first."""

    def __init__(self, last: nn.Module) -> None:
        super().__init__()
        self.encoder = nn.Linear(3, 3)
        kind = pytest.importorskip("dgl.nn").NNConv
        self.layers = nn.ModuleList(kind(4, 4, nn.Linear(3, 16), "mean") for _ in range(2))
        self.last = last

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        for layer, block in zip(self.layers, blocks, strict=True):
            x = layer(block, x, self.encoder(block.edata["feat"]))
        return self.last(x)


def test_edge_data_of_dgl_reaches_the_trial() -> None:
    blocks = with_edge_data()
    exact = wb.check_exact(WithEdges(nn.LayerNorm(4)), blocks)
    assert exact.exact is True and exact.deviation is not None and exact.deviation < 1e-12  # in float64
    assert wb.check_exact(WithEdges(nn.BatchNorm1d(4)), blocks).module == "last"


def test_edge_attributes_of_pyg_reach_the_trial() -> None:
    nn_pyg = pytest.importorskip("torch_geometric.nn")

    class Gine(nn.Module):
        def __init__(self, last: nn.Module) -> None:
            super().__init__()
            self.encoder, self.layer, self.last = nn.Linear(3, 4), nn_pyg.GINEConv(nn.Linear(4, 4)), last

        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
            return self.last(self.layer(x, edge_index, self.encoder(edge_attr)))

    batch = MERGED.to_pyg("edge_index")
    batch.x, batch.edge_attr = torch.randn(MERGED.num_inputs, 4), torch.randn(batch.edge_index.shape[1], 3)
    exact = wb.check_exact(Gine(nn.LayerNorm(4)), batch)
    assert exact.exact is True and exact.deviation is not None and exact.deviation < 1e-12
    assert wb.check_exact(Gine(nn.BatchNorm1d(4)), batch).module == "last"


def test_layers_of_models_that_can_not_be_called_are_known() -> None:
    nn_dgl, blocks = pytest.importorskip("dgl.nn"), with_edge_data()
    with pytest.warns(RuntimeWarning, match=r"GraphConv \(0\) makes gradients"):
        wb.micro_batches(blocks, 4, model=nn.ModuleList([nn_dgl.GraphConv(4, 4) for _ in range(2)]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wb.micro_batches(blocks, 4, model=nn.ModuleList([nn_dgl.GraphConv(4, 4, norm="right") for _ in range(2)]))


def test_options_decide_what_is_known() -> None:
    n = pytest.importorskip("torch_geometric.nn")
    for inexact, exact in (
        (n.GCNConv(4, 4), n.GCNConv(4, 4, normalize=False)),
        (n.ChebConv(4, 4, 2), n.ChebConv(4, 4, 1)),
        (n.APPNP(2, 0.1), n.APPNP(0, 0.1)),
        (n.MixHopConv(4, 4, [0, 1]), n.MixHopConv(4, 4, [0])),
        (n.EGConv(4, 4, num_heads=2, num_bases=2), n.EGConv(4, 4, ["mean"], 2, 2)),
        (n.LayerNorm(4), n.LayerNorm(4, mode="node")),
        (n.BatchNorm(4), n.BatchNorm(4).eval()),
        (n.HeteroBatchNorm(4, 2), n.HeteroBatchNorm(4, 2).eval()),
    ):
        result = wb.check_exact(nn.ModuleList([inexact]), MERGED)
        assert (result.exact, result.module, result.deviation) == (False, "0", None)
        assert wb.check_exact(nn.ModuleList([exact]), MERGED).exact is None


class Points(nn.Module):
    """Two layers that take the maximum over messages of neighbours; three channels are positions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = pytest.importorskip("torch_geometric.nn").PointNetConv
        self.layers = nn.ModuleList(layer(nn.Linear(7, 4)) for _ in "ab")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, x[:, :3], edge_index)
        return x


class CentredPoints(Points):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = super().forward(x, edge_index)
        return x - x.mean(0)


@pytest.mark.parametrize(("distinct", "scale"), [(1, 0.0), (1, 1.0), (3, 1.0)])
def test_rounding_between_equal_features_is_no_deviation(distinct: int, scale: float) -> None:
    """It chooses which of equal neighbours gets the gradient of a maximum, in the whole batch and in parts."""
    x = scale * (MERGED.node_ids[:, None] % distinct + torch.arange(4)).float().cos()
    assert wb.check_exact(Points(), MERGED, x=x).exact is True
    assert wb.check_exact(CentredPoints(), MERGED, x=x).exact is False
