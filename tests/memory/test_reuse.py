"""Estimates of models that reuse their buffers, compared with the meter."""

import pytest
import torch

import workbench as wb
from tests.memory.measured import CLASSES, FANOUTS, GRAPH, IN, NARROW, WIDE, build, check, sample, thirds
from workbench.nn.model import REUSING_KINDS


@pytest.mark.parametrize(("num_layers", "hidden_dim"), [(1, NARROW), (2, WIDE), (3, NARROW)])
@pytest.mark.parametrize("kind", REUSING_KINDS)
def test_matches_the_meter(kind: str, num_layers: int, hidden_dim: int) -> None:
    dropout = 0.4 if num_layers == 3 else 0.0
    model = build(kind, num_layers, hidden_dim, reuse_buffers=True, dropout=dropout)
    check(model, [sample(FANOUTS[:num_layers])])


@pytest.mark.parametrize("kind", ["sage-mean", "gin"])
def test_with_norms_and_float64(kind: str) -> None:
    check(build(kind, 2, WIDE, torch.float64, reuse_buffers=True, norm="layer"), [sample(FANOUTS[:2])])


def test_micro_batches_share_the_buffers_of_the_largest() -> None:
    micro = sorted(thirds(sample(FANOUTS[:2])), key=lambda mb: -mb.num_inputs)
    check(build("sage-mean", 2, WIDE, reuse_buffers=True), micro)


def test_a_plan_that_fits_is_measured_to_fit() -> None:
    model = build("sage-mean", 2, WIDE, reuse_buffers=True)
    batch = sample(FANOUTS[:2])
    whole = wb.estimate_memory(model, batch)
    assert whole.error is None and whole.terms["hidden"] > 0
    capacity = whole.peak_bytes * 3 // 4
    plan = wb.plan_micro_batches(model, batch, memory=capacity, method="random")
    assert plan.num_parts > 1
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.zeros(GRAPH.num_nodes, IN), torch.arange(GRAPH.num_nodes) % CLASSES
    profile = wb.profile_epoch(model, [list(plan.micro)], x, y, torch.nn.functional.cross_entropy, optimizer)
    assert profile.peak_bytes is not None and profile.peak_bytes <= capacity
