"""`TrainingSetup`: one record for estimates, plans and steps."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.strategies import random_graph, random_minibatch

BATCH = random_minibatch(random_graph(400, 2000), fanouts=(3, 2), num_seeds=100)
X, Y = torch.linspace(-1, 1, 3200).sin().view(400, 8), torch.arange(400) % 3


def new_setup() -> wb.TrainingSetup:
    model = wb.build_model("sage-mean", in_dim=8, hidden_dim=5, out_dim=3)
    return wb.TrainingSetup(model, cross_entropy, torch.optim.Adam(model.parameters()))


def test_estimates_plans_and_steps_are_those_of_the_functions_with_many_arguments() -> None:
    setup, other = new_setup(), new_setup()
    estimator = wb.memory.estimator_for(setup, BATCH)
    assert estimator(BATCH) == wb.estimate_memory(other.model, BATCH, optimizer=other.optimizer)
    capacity = int(0.9 * estimator(BATCH).peak_bytes)
    plans = [
        wb.memory.plan_with(estimator, BATCH, memory=capacity, method="random"),
        wb.plan_micro_batches(other.model, BATCH, memory=capacity, method="random", optimizer=other.optimizer),
    ]
    assert torch.equal(plans[0].assignment, plans[1].assignment) and plans[0].num_parts > 1
    assert not isinstance(other.optimizer, str)
    ours = wb.training.train_step_with(setup, plans[0].micro, X, Y)
    assert torch.equal(ours, wb.train_step(other.model, plans[1].micro, X, Y, cross_entropy, other.optimizer))
    for mine, theirs in zip(setup.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_setup_with_recovery_estimates_its_second_set_of_gradients() -> None:
    setup = new_setup()
    recovering = wb.memory.estimator_for(replace(setup, recover=wb.Recovery()), BATCH)(BATCH, accumulating=True)
    assert recovering == wb.estimate_memory(
        setup.model, BATCH, optimizer=setup.optimizer, accumulating=True, recover=True
    )
    assert recovering.peak_bytes > wb.memory.estimator_for(setup, BATCH)(BATCH, accumulating=True).peak_bytes


def test_a_named_optimizer_estimates_but_can_not_step() -> None:
    named = replace(new_setup(), optimizer="adam")
    assert wb.memory.estimator_for(named, BATCH)(BATCH) == wb.memory.estimator_for(new_setup(), BATCH)(BATCH)
    with pytest.raises(TypeError, match="optimizer is a str; pass an optimizer"):
        wb.training.train_step_with(named, BATCH, X, Y)


def test_a_setup_is_described_by_its_parts() -> None:
    assert repr(new_setup()) == "TrainingSetup(GNN, cross_entropy, Adam, mean)"
