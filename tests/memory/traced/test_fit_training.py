"""Optimizers, losses and recovery of modules without an analytic model; which modules are refused."""

import copy
import random
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.performance.own_models import Attention, Jumping, Residual, Sparse
from tests.memory.traced.fitted import (
    BATCHES,
    NODES,
    WITHIN,
    X,
    Y,
    adam,
    before_the_step,
    errors,
    estimates,
    measure,
    split,
)
from workbench.core.block import Block
from workbench.memory.traced.predictor import fit_memory
from workbench.memory.training_setup import Recovery
from workbench.training.step import train_step


@pytest.mark.parametrize(
    "optimizer_of",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.AdamW(p, amsgrad=True, foreach=True),
        lambda p: torch.optim.RMSprop(p),
        lambda p: torch.optim.Adam(list(p)[:2]),
    ],
)
def test_optimizers_of_any_kind(optimizer_of: Callable[..., torch.optim.Optimizer]) -> None:
    model, mb = Jumping(24, 64, 5, 1), BATCHES[1]
    optimizer = optimizer_of(model.parameters())
    fitted = fit_memory(model, mb, in_dim=24, optimizer=optimizer)
    assert not optimizer.state
    assert not any(errors(fitted, model, mb, 2, optimizer))


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_optimizers_by_name(name: str) -> None:
    model, mb = Jumping(24, 64, 5, 1).double(), BATCHES[1]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[name]
    fitted = fit_memory(model, mb, in_dim=24, optimizer=name)
    assert not any(errors(fitted, model, mb, 2, kind(model.parameters())))


def squared(out: Tensor, labels: Tensor) -> Tensor:
    """A loss per seed that expects one value per seed."""
    assert labels.dim() == 1 and labels.is_floating_point()
    return (out.sum(1) - labels) ** 2


@pytest.mark.parametrize(
    ("loss_fn", "y"),
    [
        (F.binary_cross_entropy_with_logits, torch.rand(NODES, 5)),
        (nn.CrossEntropyLoss(label_smoothing=0.1), Y),
        (squared, torch.rand(NODES)),
    ],
)
def test_losses_of_any_kind(loss_fn: Callable[..., Tensor], y: Tensor) -> None:
    model, mb = Jumping(24, 8, 5, 1), BATCHES[1]
    fitted = fit_memory(model, mb, in_dim=24, loss_fn=loss_fn)
    assert fitted(mb).peak_bytes == measure(model, [mb], adam(model), y, loss_fn).peak_bytes


@pytest.mark.parametrize("model_of", [lambda: Sparse(24, 96, 5, 2).eval(), lambda: Jumping(24, 1024, 5, 2)])
def test_oom_recovery_is_estimated(model_of: Callable[[], nn.Module]) -> None:
    """Counts two sets of gradients, a buffer backup per micro-batch, and a backup of all that the step changes."""
    model, parts = model_of(), split(BATCHES[2], 4)
    fitted = fit_memory(model, BATCHES[2], in_dim=24, recover=True)
    measured, expected = measure(model, parts, adam(model), recover=Recovery()), estimates(fitted, parts)
    assert [before_the_step(estimate) for estimate in expected] == list(measured.by_part)
    assert expected[-1].phase_bytes["step"] == measured.by_phase["step"]


def test_fitting_changes_no_state() -> None:
    torch.manual_seed(0)
    model, mb = Sparse(24, 8, 5, 2), BATCHES[2]
    optimizer = adam(model)
    train_step(model, mb, X, Y, F.cross_entropy, optimizer)
    list(model.norms)[1].eval()
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict(), [p.grad for p in model.parameters()]))
    modes, state, random_state = [m.training for m in model.modules()], torch.get_rng_state(), random.getstate()
    with torch.no_grad():
        fit_memory(model, mb, in_dim=24, optimizer=optimizer)(mb)
        assert not torch.is_grad_enabled()
    after = model.state_dict(), optimizer.state_dict(), [p.grad for p in model.parameters()]
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert [m.training for m in model.modules()] == modes and random.getstate() == random_state
    assert torch.equal(torch.get_rng_state(), state)


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 5)

    def forward(self, blocks: Sequence[Block], x: Tensor) -> Tensor:
        if blocks[-1].num_dst < 100:
            raise RuntimeError("too few seeds")
        return self.linear(x)[: blocks[-1].num_dst]


def test_untraceable_modules_are_refused() -> None:
    mb = BATCHES[1]
    with pytest.raises(
        ValueError, match=r"step of Fails on 4 of the seeds .* can't be estimated: RuntimeError: too few"
    ):
        fit_memory(Fails(), mb, in_dim=24)
    with pytest.raises(ValueError, match=r"of in_dim 23.*mat1 and mat2"):
        fit_memory(Jumping(24, 8, 5, 1), mb, in_dim=23)
    with pytest.raises(ValueError, match="in_dim is 0"):
        fit_memory(Jumping(24, 8, 5, 1), mb, in_dim=0)
    with pytest.raises(ValueError, match="optimizer 'lion'"):
        fit_memory(Jumping(24, 8, 5, 1), mb, in_dim=24, optimizer="lion")
    with pytest.raises(ValueError, match="loss_fn accepts neither class labels nor values"):
        fit_memory(Jumping(24, 8, 5, 1), mb, in_dim=24, loss_fn=lambda out, labels: out.sum())


def test_uncopyable_models_are_refused() -> None:
    model = Jumping(24, 8, 5, 1)
    model.cached = model.out(torch.ones(1, 32))[0]  # a non-leaf tensor with its autograd graph
    with pytest.raises(ValueError, match="a Jumping can't be copied"):
        fit_memory(model, BATCHES[1], in_dim=24)


@pytest.mark.cuda
@pytest.mark.parametrize(
    "kind", [Attention, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (Jumping, Residual))]
)
def test_on_a_gpu(kind: type[nn.Module]) -> None:
    model, mb = kind(24, 64, 5, 2).cuda(), BATCHES[2]
    fitted = fit_memory(model, mb, in_dim=24)
    for num_parts in (1, 4):
        assert max(map(abs, errors(fitted, model, mb, num_parts))) <= WITHIN
