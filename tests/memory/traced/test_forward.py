"""`forward=`: a loop that does more than call its model is estimated and planned as it is."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.memory.measured import CLASSES, GRAPH, IN, build, measure, sample

BATCH = sample([4, 6], 400)
Y = torch.arange(GRAPH.num_nodes) % CLASSES


class Recurrent(nn.Module):
    """A recurrent layer, which keeps its weights in a list beside its parameters, and a buffer that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.out = nn.LSTM(IN, 12, batch_first=True), nn.Linear(12, CLASSES)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.out(self.rnn(x[:, None])[0][:, 0])


def of_steps(model: Recurrent) -> Any:
    return lambda mb, inputs: model(inputs.x)[: mb.num_seeds]


def with_noise(model: nn.Module) -> Any:
    """The same model on the features and on noisy ones: twice the activations."""

    def forward(mb: wb.MiniBatch, inputs: wb.Inputs) -> Tensor:
        return model(mb.blocks, inputs.x) + model(mb.blocks, inputs.x + torch.randn_like(inputs.x))

    return forward


@pytest.mark.parametrize(("model", "around"), [(build("gin", 2, 32), with_noise), (Recurrent(), of_steps)])
def test_the_estimate_is_that_of_the_call(model: nn.Module, around: Any) -> None:
    forward, optimizer = around(model), torch.optim.Adam(model.parameters())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    held, options = dict(model.named_parameters()), {"optimizer": optimizer, "in_dim": IN, "forward": forward}
    estimate = wb.estimate_memory(model, BATCH, **options)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter is held[name] for name, parameter in model.named_parameters()), "not those of the copy"
    assert all(parameter.grad is None for parameter in held.values()) and not optimizer.state
    measured = measure(model, [BATCH], optimizer, in_dim=IN, y=Y, forward=forward).peak_bytes
    assert abs(estimate.peak_bytes - measured) < 0.01 * measured


def test_more_around_the_call_needs_more_parts() -> None:
    model = build("sage-mean", 2, 32)
    memory = round(0.8 * wb.estimate_memory(model, BATCH).peak_bytes)
    plain = wb.plan_micro_batches(model, BATCH, memory=memory)
    twice = wb.plan_micro_batches(model, BATCH, memory=memory, in_dim=IN, forward=with_noise(model))
    assert twice.num_parts > plain.num_parts
    parts = wb.micro_batches(BATCH, model=model, memory=memory, in_dim=IN, forward=with_noise(model), verify=False)
    assert len(parts) == twice.num_parts
    optimizer = torch.optim.Adam(model.parameters())
    peak = measure(model, list(parts), optimizer, in_dim=IN, y=Y, forward=with_noise(model)).peak_bytes
    assert peak <= memory


def test_an_inexact_call_is_warned_of() -> None:
    """Subtracting the mean of all inputs makes a seed's output depend on the others of its micro-batch."""
    model = build("sage-mean", 2, 16)

    def centred(mb: wb.MiniBatch, inputs: wb.Inputs) -> Tensor:
        return model(mb.blocks, inputs.x - inputs.x.mean(0))

    with pytest.warns(RuntimeWarning, match="micro-batch"):
        wb.micro_batches(BATCH, 3, model=model, in_dim=IN, forward=centred)


def test_a_call_that_fails_is_named_and_leaves_the_model_as_it_was() -> None:
    model = build("gcn", 2, 16)
    held = dict(model.named_parameters())
    with pytest.raises(ValueError, match=r"a training step of GNN on .* failed"):
        wb.estimate_memory(model, BATCH, in_dim=IN, forward=lambda mb, inputs: model(inputs.x), loss_fn=cross_entropy)
    assert all(parameter is held[name] for name, parameter in model.named_parameters())
