"""PyG's layers on `(x, edge_index)` and `(x, adjs)`: parts equal the whole batch, on any batch."""

from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor, nn

import workbench as wb
from tests.strategies import minibatches, random_graph, random_minibatch
from tests.training.toys import gradients, relative_difference

TOLERANCE = 1e-10
X = torch.linspace(-9, 9, 40 * 4, dtype=torch.float64).sin().view(40, 4)
COEFFICIENTS = torch.linspace(-3, 3, 40, dtype=torch.float64).cos()[:, None]


class Net(nn.Module):
    """As PyG's examples write it: all edges in every layer."""

    def __init__(self, kind: str, num_layers: int) -> None:
        nn_pyg = pytest.importorskip("torch_geometric.nn")
        super().__init__()
        torch.manual_seed(0)
        build = {
            "sage": lambda: nn_pyg.SAGEConv(4, 4),
            "gat": lambda: nn_pyg.GATConv(4, 2, heads=2),
            "gin": lambda: nn_pyg.GINConv(nn.Linear(4, 4)),
        }[kind]
        self.layers = nn.ModuleList(build() for _ in range(num_layers)).double()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index).sin()
        return x


def run(model: nn.Module, batch: Any) -> Tensor:
    """Add the gradients of a batch of PyG, and return its seeds' outputs, ordered by raw-graph id."""
    seeds = batch.n_id[: batch.batch_size]
    out = model(X[batch.n_id], batch.edge_index)[: batch.batch_size]
    (out * COEFFICIENTS[seeds]).sum().backward()
    return out.detach()[seeds.argsort()]


def assert_exact(model: nn.Module, batch: Any, num_parts: int) -> None:
    model.zero_grad()
    whole, expected = run(model, batch), gradients(model)
    model.zero_grad()
    parts = wb.micro_batches(batch, num_parts, method="random")
    outputs = [run(model, part) for part in parts]
    order = torch.cat([part.n_id[: part.batch_size].sort().values for part in parts]).argsort()
    torch.testing.assert_close(torch.cat(outputs)[order], whole, rtol=TOLERANCE, atol=TOLERANCE)
    assert relative_difference(gradients(model), expected) <= TOLERANCE


@pytest.mark.parametrize("kind", ["sage", "gat", "gin"])
def test_edge_index_is_exact_on_any_batch(kind: str) -> None:
    models = [Net(kind, num_layers) for num_layers in range(1, 5)]

    @given(minibatches())
    def check(mb: wb.MiniBatch) -> None:
        if mb.num_seeds and mb.blocks and mb.num_edges:
            assert_exact(models[len(mb.blocks) - 1], mb.to_pyg("edge_index"), 3)

    check()


def test_the_sample_of_each_layer_is_lost_in_edge_index() -> None:
    """Otherwise the conversion would do nothing, and the tests above prove nothing."""
    mb = random_minibatch(random_graph(40, 400), fanouts=(2, 2), num_seeds=12)
    assert mb.to_pyg("edge_index").n_id.numel() < mb.num_inputs


@pytest.mark.parametrize("merged", [True, False])
def test_parts_have_both_forms_of_a_batch_with_one_sample_per_node(merged: bool) -> None:
    mb = random_minibatch(random_graph(40, 200), fanouts=(-1, -1), num_seeds=9)
    (part, *_) = wb.micro_batches(mb.to_pyg("edge_index" if merged else "adjs"), 3, method="random")
    assert len(part.adjs) == len(part.num_sampled_edges) == 2
    assert sum(part.num_sampled_edges) == part.edge_index.shape[1]
    assert sum(part.num_sampled_nodes) == len(part.n_id)
    assert part.num_sampled_nodes[0] == part.batch_size


def test_trimmed_layers_are_exact() -> None:
    utils = pytest.importorskip("torch_geometric.utils")

    class Trimmed(Net):
        def forward(self, x: Tensor, batch: Any) -> Tensor:  # type: ignore[override]
            edge_index = batch.edge_index
            for position, layer in enumerate(self.layers):
                x, edge_index, _ = utils.trim_to_layer(
                    position, batch.num_sampled_nodes, batch.num_sampled_edges, x, edge_index
                )
                x = layer(x, edge_index).sin()
            return x

    mb = random_minibatch(random_graph(40, 300), fanouts=(3, 3), num_seeds=12)
    batch, model = mb.to_pyg("edge_index"), Trimmed("sage", 2)
    whole = model(X[batch.n_id], batch)[:12]
    torch.testing.assert_close(whole, Net.forward(model, X[batch.n_id], batch.edge_index)[:12])
    for part in wb.micro_batches(batch, 4, method="random"):
        out = model(X[part.n_id], part)[: part.batch_size]
        rows = (part.n_id[: part.batch_size, None] == batch.n_id[:12]).nonzero()[:, 1]
        torch.testing.assert_close(out, whole[rows], rtol=TOLERANCE, atol=TOLERANCE)


def test_the_recipe_of_gcn_conv_is_exact_and_equals_gcn_conv() -> None:
    nn_pyg = pytest.importorskip("torch_geometric.nn")
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    class Gcn(nn.Module):
        def __init__(self, **options: Any) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList(nn_pyg.GCNConv(4, 4, **options) for _ in range(2)).double()

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            for layer in self.layers:
                x = layer(x, edge_index, edge_weight).sin()
            return x

    mb = random_minibatch(random_graph(40, 300, edge_ids=False), fanouts=(3, 3), num_seeds=12)
    batch = mb.to_pyg("edge_index")
    plain, weighted = Gcn(add_self_loops=False), Gcn(normalize=False)
    expected = plain(X[batch.n_id], batch.edge_index)
    with pytest.warns(
        RuntimeWarning, match=r"GCNConv \(layers.\d\) .* normalize=False .* batch.edge_weight = gcn_norm\("
    ):
        wb.accumulate(
            plain,
            wb.MiniBatch.from_pyg(batch).split(torch.arange(12) % 3),
            lambda m: X[m.node_ids],
            lambda out, m: out.sum(),
            forward=lambda m, inputs: plain(inputs.x, m.to_pyg("edge_index").edge_index)[: m.num_seeds],
        )
    _, batch.edge_weight = gcn_norm(batch.edge_index, None, len(batch.n_id), add_self_loops=False, dtype=torch.float64)
    torch.testing.assert_close(weighted(X[batch.n_id], batch.edge_index, batch.edge_weight), expected)
    parts = wb.micro_batches(batch, 4, method="random")
    assert sum(part.batch_size for part in parts) == 12
    for part in parts:
        out = weighted(X[part.n_id], part.edge_index, part.edge_weight)[: part.batch_size]
        rows = (part.n_id[: part.batch_size, None] == batch.n_id[:12]).nonzero()[:, 1]
        torch.testing.assert_close(out, expected[rows], rtol=TOLERANCE, atol=TOLERANCE)


def test_an_edge_index_made_from_each_part_is_warned_of() -> None:
    """The whole batch must be converted: parts choose other samples of a node."""
    mb, model = random_minibatch(random_graph(40, 400), fanouts=(3, 3), num_seeds=12), Net("sage", 2)

    def forward(part: wb.MiniBatch, inputs: wb.Inputs) -> Tensor:
        batch = part.to_pyg("edge_index")
        rows = (part.node_ids[None] == batch.n_id[:, None]).nonzero()[:, 1]
        return model(inputs.x[rows], batch.edge_index)[: part.num_seeds]

    assert wb.check_exact(model, mb, x=X[mb.node_ids], forward=forward).exact is False
    converted = wb.MiniBatch.from_pyg(mb.to_pyg("edge_index"))
    assert wb.check_exact(model, converted, x=X[converted.node_ids], forward=forward).exact is True
