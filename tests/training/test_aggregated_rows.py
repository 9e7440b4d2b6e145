"""Batches without the input layer, trained on precomputed aggregates, equal a first layer of full neighbourhoods."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import workbench as wb
from tests.memory.measured import build, check, sample, thirds
from tests.partitioners import skip_without_library
from tests.training.test_model_call import GRAPH, LINEAR, TOLERANCE, X, Y, assert_same, new_model, step
from tests.training.toys import relative_difference
from workbench.nn.model import REUSING_KINDS

SEEDS = torch.arange(0, 40, 2)
FULL = wb.NeighborSampler([-1, 3, 2], seed=2)
SHORT = wb.macrobatch.WithoutInputLayer(wb.NeighborSampler([1, 3, 2], seed=2))  # the input layer's fanout has no effect


def rows_of(model: nn.Module, x: Any = X) -> wb.training.AggregatedRows:
    return wb.training.AggregatedRows(x, wb.macrobatch.aggregate_rows(GRAPH, x, model=model))


@pytest.mark.parametrize("kind", LINEAR)
def test_a_step_equals_that_of_a_full_neighbour_first_layer(kind: str) -> None:
    model = new_model(kind, num_layers=3, dropout=0.5)
    expected, rows = step(model, FULL.sample(GRAPH, SEEDS, step=7)), rows_of(model)
    mb = SHORT.sample(GRAPH, SEEDS, step=7)
    assert_same(step(model, mb, rows), expected)
    assert_same(step(model, mb, wb.Inputs(X, rows.aggregated)), expected)
    assert expected[1].norm() > 1e-3


@pytest.mark.parametrize("method", ["reg", "random"])
def test_the_parts_of_a_partition_equal_the_whole_batch(method: str) -> None:
    skip_without_library(method)
    model = new_model(num_layers=3, dropout=0.5)
    mb = SHORT.sample(GRAPH, SEEDS, step=7)
    micro = mb.split(wb.partition_batch(mb, 3, method=method))
    assert len(micro) == 3
    assert_same(step(model, micro, rows_of(model)), step(model, FULL.sample(GRAPH, SEEDS, step=7)))


@pytest.mark.parametrize("kind", REUSING_KINDS)
def test_layers_that_reuse_buffers_read_them_too(kind: str) -> None:
    model, mb = new_model(kind, num_layers=3, reuse_buffers=True), SHORT.sample(GRAPH, SEEDS, step=7)
    expected = step(new_model(kind, num_layers=3), FULL.sample(GRAPH, SEEDS, step=7))
    for _ in range(2):
        assert_same(step(model, mb, rows_of(model)), expected)


def test_a_macrobatch_from_disk_fetches_two_rows_per_destination(tmp_path: Path) -> None:
    model, links = new_model(num_layers=3), wb.Traffic()
    wb.MappedRows.create(tmp_path / "x", X)
    x = wb.MappedRows(tmp_path / "x", traffic=links)
    rows: Any = wb.training.AggregatedRows(
        x, wb.macrobatch.aggregate_rows(GRAPH, X, model=model, folder=tmp_path / "a", traffic=links)
    )
    options: dict[str, Any] = {"batch_size": 5, "epoch": 0}
    whole = list(wb.batches(GRAPH, SEEDS, sampler=FULL, **options))
    window = list(wb.prefetch(wb.batches(GRAPH, SEEDS, sampler=SHORT, **options)))
    staged = wb.stage(rows, window)
    assert links.row()["disk_rows"] == 2 * len(torch.cat([mb.node_ids for _, mb in window]).unique())
    for (_, full), (_, mb) in zip(whole, window, strict=True):
        assert_same(step(model, mb, staged), step(model, full))
    with pytest.raises(IndexError, match="is not among the"):
        staged.read(torch.tensor([next(i for i in range(60) if i not in torch.cat([m.node_ids for _, m in window]))]))  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("kind", LINEAR)
def test_layer_wise_evaluation_starts_from_them(kind: str, num_layers: int) -> None:
    model = new_model(kind, num_layers=num_layers, dropout=0.5, norm="layer")
    rows, nodes = rows_of(model), torch.tensor([31, 4, 59])
    for chosen in (None, nodes):
        ours = wb.full_neighbour_logits(model, GRAPH, rows, nodes=chosen, chunk_edges=40)
        assert relative_difference(ours, wb.full_neighbour_logits(model, GRAPH, X, nodes=chosen)) <= TOLERANCE
    assert model.training and not ours.requires_grad


def test_a_profile_and_accumulate_read_both() -> None:
    model, mb = new_model(num_layers=3), SHORT.sample(GRAPH, SEEDS, step=7)
    rows, loss_of = rows_of(model), wb.BatchLoss.of(mb, Y, F.cross_entropy)
    loss = wb.accumulate(model, mb, lambda part: rows.read(part.node_ids), loss_of)
    profile = wb.profile_epoch(model, [[mb]], rows, Y, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.0))
    assert profile.loss == pytest.approx(float(loss), rel=1e-12)


@pytest.mark.parametrize("kind", LINEAR)
def test_estimates_match_the_meter(kind: str) -> None:
    for hidden_dim in (16, 40) if kind == "sage-mean" else (40,):
        check(build(kind, 3, hidden_dim), thirds(sample([6, 8])), aggregated=True)
    check(
        build(kind, 1, 16),
        [wb.macrobatch.WithoutInputLayer(wb.NeighborSampler([2])).sample(GRAPH, SEEDS)],
        aggregated=True,
    )


@pytest.mark.parametrize("kind", ["sage-mean", "gin"])
def test_estimates_of_reused_buffers_match_the_meter(kind: str) -> None:
    check(build(kind, 3, 16, reuse_buffers=True), thirds(sample([6, 8])), aggregated=True)


def test_plans_hold_and_other_batches_are_refused() -> None:
    model, mb = build("sage-mean", 3, 16), sample([6, 8])
    peak = wb.estimate_memory(model, mb).peak_bytes
    plan = wb.plan_micro_batches(model, mb, memory=int(0.7 * peak), method="random")
    assert plan.num_parts > 1 and max(e.peak_bytes for e in plan.estimates) <= 0.7 * peak < peak
    for wrong, options in ((build("sage-mean", 4, 16), {}), (build("gat", 3, 16), {})):
        with pytest.raises(ValueError, match="sample with one fanout per layer"):
            wb.estimate_memory(wrong, mb, **options)
    with pytest.raises(ValueError, match="omit aggregate_on_read"):
        wb.estimate_memory(model, mb, aggregate_on_read=True)


class OfDGL(nn.Module):
    """Layers of DGL, the first of which may be given its aggregate."""

    def __init__(self) -> None:
        super().__init__()
        conv = pytest.importorskip("dgl.nn.pytorch").SAGEConv
        self.layers = nn.ModuleList([conv(4, 8, "mean"), conv(8, 8, "mean"), conv(8, 3, "mean")])

    def forward(self, blocks: Any, x: Tensor, *, aggregated: Tensor | None = None) -> Tensor:
        first: Any = self.layers[0]
        h = first(blocks[0], x) if aggregated is None else first.fc_self(x) + first.fc_neigh(aggregated)
        for layer, block in zip(self.layers[1:], blocks if aggregated is not None else blocks[1:], strict=True):
            h = layer(block, h.relu())
        return h


class OfPyG(nn.Module):
    """Layers of PyG, the first of which may be given its aggregate."""

    def __init__(self) -> None:
        super().__init__()
        conv = pytest.importorskip("torch_geometric.nn").SAGEConv
        self.layers = nn.ModuleList([conv(4, 8), conv(8, 8), conv(8, 3)])

    def forward(self, x: Tensor, adjs: Any, *, aggregated: Tensor | None = None) -> Tensor:
        first: Any = self.layers[0]
        h = x if aggregated is None else first.lin_r(x) + first.lin_l(aggregated)
        for layer, (edge_index, _, size) in zip(self.layers[aggregated is not None :], adjs, strict=True):
            h = layer((h, h[: size[1]]) if h is x else (h.relu(), h.relu()[: size[1]]), edge_index)
        return h


@pytest.mark.parametrize("make", [OfDGL, OfPyG])
def test_models_of_other_libraries_train_on_the_exported_blocks(make: Callable[[], nn.Module]) -> None:
    model, graph = make().double(), wb.Graph(GRAPH.indptr, GRAPH.indices)  # their SAGE has no weights
    rows = wb.training.AggregatedRows(X, wb.macrobatch.aggregate_rows(graph, X, kind="sage-mean"))
    expected, mb = step(model, FULL.sample(graph, SEEDS, step=7)), SHORT.sample(graph, SEEDS, step=7)
    for micro in (mb, mb.split(torch.arange(20) % 2)):
        assert_same(step(model, micro, rows), expected)
    assert expected[1].norm() > 1e-3
    assert len(mb.to_dgl() if make is OfDGL else mb.to_pyg().adjs) == 2


def test_models_without_an_argument_for_them_are_refused_clearly() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Linear(4, 3)

        def forward(self, blocks: Any, x: Tensor) -> Tensor:
            return self.layers(x[: blocks[-1].num_dst])

    model = Plain().double()
    mb, rows = SHORT.sample(GRAPH, SEEDS), wb.training.AggregatedRows(X, X)
    with pytest.raises(TypeError, match=r"can't be called with \(blocks, x, aggregated=\); add these parameters"):
        step(model, mb, rows)


def test_rows_that_do_not_match_are_refused() -> None:
    for error, text, call in (
        (ValueError, r"x has shape \(60, 4\), but aggregated \(59, 4\)", lambda: wb.training.AggregatedRows(X, X[1:])),
        (ValueError, r"aggregated \(60, 3\)", lambda: wb.training.AggregatedRows(X, X[:, 1:])),
        (
            TypeError,
            r"x is torch.float64, but aggregated torch.float32",
            lambda: wb.training.AggregatedRows(X, X.float()),
        ),
        (TypeError, "aggregated is a NoneType", lambda: wb.training.AggregatedRows(X, None)),
    ):
        with pytest.raises(error, match=text):
            call()
    model = new_model(num_layers=3)
    with pytest.raises(ValueError, match="3 blocks given; this model of 3 layers needs 2"):
        step(model, FULL.sample(GRAPH, SEEDS), rows_of(model))
    with pytest.raises(ValueError, match="2 blocks given; this model of 3 layers needs 3"):
        step(model, SHORT.sample(GRAPH, SEEDS))
