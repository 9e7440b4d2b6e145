"""Marginal bytes of a model against its estimates of micro-batches."""

import pytest
import torch

import workbench as wb
from tests.memory.counting import batch, count
from workbench.memory.estimator import marginal_costs
from workbench.partition.computation_graph import computation_graph, contract
from workbench.partition.refine import count_bytes


def test_costs_of_a_linear_estimator_are_its_coefficients() -> None:
    assert marginal_costs(count, batch()) == wb.partition.ByteCosts((64, 0, 0), (8, 8))


@pytest.mark.parametrize("kind", ["sage-mean", "gat", "gin", "sage-lstm"])
def test_costs_predict_the_estimates_of_parts(kind: str) -> None:
    mb = batch(num_nodes=3000, num_seeds=1500)
    model = wb.build_model(kind, in_dim=100, hidden_dim=32, out_dim=7, num_layers=2)
    costs = wb.memory.byte_costs(wb.TrainingSetup(model), mb)
    part = torch.arange(1500) ** 2 // (1500**2 // 4 + 1)  # of 750, 311, 238 and 201 seeds
    predicted = count_bytes(contract(computation_graph(mb, costs)), part)
    estimated = [wb.estimate_memory(model, micro, accumulating=True).step_bytes for micro in mb.split(part)]
    ratio = predicted / torch.tensor(estimated, dtype=torch.float64)
    # Some parts of a sage-mean batch aggregate first where the batch multiplies first (nn.layer_order).
    assert float(ratio.max() / ratio.min()) < (1.15 if kind == "sage-mean" else 1.1) and 0.8 < float(ratio.mean()) < 1.2


def test_wider_features_raise_the_cost_of_inputs_alone() -> None:
    mb, costs = batch(), []
    for in_dim in (512, 1024):
        model = wb.build_model("sage-mean", in_dim=in_dim, hidden_dim=16, out_dim=7, num_layers=2)
        costs.append(wb.memory.byte_costs(wb.TrainingSetup(model), mb))
    assert costs[1].per_node[0] - costs[0].per_node[0] == pytest.approx(4 * 512, rel=0.05)
    assert costs[1].per_edge == pytest.approx(costs[0].per_edge, abs=1)


def test_batches_without_edges() -> None:
    block = wb.Block(torch.zeros(6, dtype=torch.int64), torch.empty(0, dtype=torch.int32), 5, 5)
    assert marginal_costs(count, wb.MiniBatch(torch.arange(5), (block,))).per_edge == (0.0,)
