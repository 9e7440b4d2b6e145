"""The first layer's aggregate computed from the features: the same step, in less memory, which estimates know."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import workbench as wb
from tests.memory.measured import GRAPH as LARGE, build, check, measure, sample, thirds, with_weights
from tests.training.test_model_call import BATCH, GRAPH, MICRO, X, assert_same, new_model, step
from workbench.memory.training_setup import Recovery
from workbench.nn.gcn import GCNLayer
from workbench.nn.gnn import GNN

KINDS = ("sage-mean", "gcn", "gin")


@pytest.mark.parametrize("micro", [BATCH, MICRO], ids=["whole", "parts"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_step_equals_the_plain_one(kind: str, micro: Any) -> None:
    for hidden in (2, 8):  # below and above the features' width, which decides the order of the layer
        model = wb.build_model(kind, in_dim=4, hidden_dim=hidden, out_dim=3, seed=4, dropout=0.3).double()
        expected = step(model, BATCH)
        assert_same(step(model, micro, wb.training.AggregateOnRead(X)), expected)
        assert expected[1].norm() > 1e-3


def test_a_single_layer_and_a_sum_without_norm() -> None:
    batch = wb.NeighborSampler([4], seed=2).sample(GRAPH, torch.arange(9, 29), step=3)
    model = GNN([GCNLayer(4, 3, norm="none")], [], nn.ReLU(), []).double()
    assert_same(step(model, batch, wb.training.AggregateOnRead(X)), step(model, batch))


def test_an_inexact_model_warns_as_with_the_features() -> None:
    for x in (X, wb.training.AggregateOnRead(X)):
        model = new_model(norm="batch")
        step(model, BATCH, x)  # which is not split
        with pytest.warns(RuntimeWarning, match=r"BatchNorm1d \(norms\.0\) makes gradients of micro-batches differ"):
            step(model, MICRO, x)
        step(model, MICRO, x)  # once
        step(new_model(norm="batch"), MICRO, x, verify=False)


def test_an_unknown_model_is_not_tried_since_its_aggregates_are_those_of_the_batch() -> None:
    class Own(nn.ReLU):
        calls = 0

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            Own.calls += 1
            return super().forward(input)

    model = new_model()
    model.activation = Own()
    step(model, MICRO, wb.training.AggregateOnRead(X))
    assert Own.calls == len(MICRO)


def test_pieces_after_an_oom_error_aggregate_too(monkeypatch: pytest.MonkeyPatch) -> None:
    model = new_model()
    expected, failures, read = step(model, BATCH), [], wb.training.AggregateOnRead._read

    def failing(self: Any, aggregate: Any, mb: wb.MiniBatch) -> wb.Inputs:
        if mb.num_seeds > 10:
            failures.append(mb)
            raise torch.OutOfMemoryError("allocate memory")
        return read(self, aggregate, mb)

    monkeypatch.setattr(wb.training.AggregateOnRead, "_read", failing)
    assert_same(step(model, BATCH, wb.training.AggregateOnRead(X), recover=Recovery()), expected)
    assert failures


@pytest.mark.parametrize("hidden_dim", [16, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_estimates_match_the_meter(kind: str, hidden_dim: int) -> None:
    model = build(kind, 3, hidden_dim)
    check(model, thirds(sample([4, 6, 8])), aggregate_on_read=True)


def test_estimates_of_large_blocks_count_positions() -> None:
    batch = sample([-1, -1], 1500)
    assert batch.blocks[0].num_edges < 1 << 15  # below which the ids of edges are looked up by torch
    many = wb.MiniBatch(batch.node_ids, (_repeated(batch.blocks[0], 4), *batch.blocks[1:]))
    assert many.blocks[0].num_edges > 1 << 15
    check(build("sage-mean", 2, 16), [many], aggregate_on_read=True)


def test_estimates_count_edge_weights_that_are_converted_on_read() -> None:
    batch = sample([-1], 300)
    many = wb.MiniBatch(batch.node_ids, (_repeated(batch.blocks[0], 3),))
    model = build("sage-mean", 1, 4, torch.float64, in_dim=4)
    check(model, [with_weights(many, torch.float32)], aggregate_on_read=True, in_dim=4)


def _repeated(block: wb.Block, times: int) -> wb.Block:
    edges = torch.cat([block.indices[a:b].repeat(times) for a, b in block.indptr.unfold(0, 2, 1).tolist()])
    return wb.Block(block.indptr * times, edges, num_src=block.num_src, num_dst=block.num_dst)


def test_it_takes_less_memory_where_sources_outnumber_destinations() -> None:
    model, y = build("sage-mean", 3, 16), torch.arange(LARGE.num_nodes) % 7
    optimizer = torch.optim.Adam(model.parameters())
    peaks = [
        measure(model, [sample([8, 4, 2], 20)], optimizer, in_dim=24, y=y, aggregate_on_read=on_read).peak_bytes
        for on_read in (False, True)
    ]
    assert peaks[1] < peaks[0]


@pytest.mark.parametrize("kind", ["sage-gcn", "sage-pool", "gat"])
def test_layers_whose_aggregate_is_no_sum_by_edge_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"pass the features x instead of AggregateOnRead\(x\)"):
        step(new_model(kind), BATCH, wb.training.AggregateOnRead(X))
    with pytest.raises(ValueError, match=r"pass the features x instead of AggregateOnRead\(x\)"):
        wb.estimate_memory(new_model(kind), BATCH, aggregate_on_read=True)


def test_degrees_of_sources_in_the_block_are_refused() -> None:
    model = GNN([GCNLayer(4, 3, norm="both")], [], nn.ReLU(), []).double()
    with pytest.raises(ValueError, match="norm='both'"):
        step(model, BATCH, wb.training.AggregateOnRead(X))


def test_what_can_not_be_aggregated_is_refused() -> None:
    with pytest.raises(TypeError, match="build_model; pass the features x to others"):
        step(nn.Linear(4, 3), BATCH, wb.training.AggregateOnRead(X))
    with pytest.raises(ValueError, match="omit forward"):
        step(new_model(), BATCH, wb.training.AggregateOnRead(X), forward=lambda mb, inputs: inputs.x)
    with pytest.raises(ValueError, match="is estimated for unmodified models of build_model on the CPU"):
        wb.estimate_memory(new_model(), BATCH, backend="cuda", aggregate_on_read=True)
    with pytest.raises(TypeError, match="bfloat16"):
        wb.training.AggregateOnRead(X.bfloat16())
    for x in (X.T, X.clone().requires_grad_(), X.flatten()):
        with pytest.raises(ValueError, match="contiguous matrix on the CPU"):
            wb.training.AggregateOnRead(x)


def test_features_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"model reads \[nodes, 4\]"):
        step(new_model(), BATCH, wb.training.AggregateOnRead(X[:, :3].contiguous()))
    with pytest.raises(IndexError, match="pass x by raw-graph id"):
        step(new_model(), BATCH, wb.training.AggregateOnRead(X[:5]))
    negative = wb.MiniBatch(
        BATCH.node_ids.clone().index_fill_(0, torch.tensor([BATCH.num_inputs - 1]), -3), BATCH.blocks
    )
    with pytest.raises(IndexError, match="-3"):
        step(new_model(), negative, wb.training.AggregateOnRead(X))


def test_weights_that_are_trained_are_refused() -> None:
    weight = nn.Parameter(torch.rand(BATCH.blocks[0].num_edges, dtype=torch.float64))
    first = replace(BATCH.blocks[0], edge_weight=weight)
    batch = replace(BATCH, blocks=(first, *BATCH.blocks[1:]))
    model = wb.build_model("gcn", in_dim=4, hidden_dim=4, out_dim=3).double()
    with pytest.raises(ValueError, match="the first block's edge_weight requires a gradient"):
        step(model, batch, wb.training.AggregateOnRead(X))
