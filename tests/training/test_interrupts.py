"""Interrupts and user errors in training: a step is taken completely or not at all, and all state is restored."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.training.toys import PlainModel, toy_batch
from workbench.memory.training_setup import Recovery
from workbench.nn.model import build_model
from workbench.training.evaluate import full_neighbour_logits
from workbench.training.oom import isolated_backward
from workbench.training.profile import profile_epoch
from workbench.training.step import train_step

X = torch.linspace(-1, 1, 160, dtype=torch.float64).sin().view(40, 4)
Y = torch.arange(40) % 3
MICRO = toy_batch().split(torch.arange(13) % 2)


def interrupt(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    sum(range(1000))  # handled by now


class Halves(torch.optim.SGD):
    """Calls `between` after updating the first of its parameters."""

    between: Callable[[], object] = staticmethod(lambda: None)

    def step(self, closure: Any = None) -> None:
        groups = self.param_groups
        first, rest = (
            [{**g, "params": g["params"][:1]} for g in groups],
            [{**g, "params": g["params"][1:]} for g in groups],
        )
        self.param_groups = first
        try:
            super().step()
            self.between()
            self.param_groups = rest
            super().step()
        finally:
            self.param_groups = groups


def trained(
    between: Callable[[], object], recover: Recovery | None
) -> tuple[list[Tensor], list[Tensor], BaseException | None]:
    """Parameters before and after a step, and its error."""
    torch.manual_seed(1)
    model = PlainModel().double()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = Halves(model.parameters(), lr=0.1)
    optimizer.between = between
    try:
        train_step(model, MICRO, X, Y, F.cross_entropy, optimizer, recover=recover)
        error = None
    except (KeyboardInterrupt, ZeroDivisionError) as raised:
        error = raised
    return before, [p.detach() for p in model.parameters()], error


def equal(some: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.mark.parametrize("recover", [None, Recovery(method="range")])
def test_an_interrupt_waits_for_the_end_of_the_optimizer_step(recover: Recovery | None) -> None:
    _, expected, _ = trained(lambda: None, recover)
    before, after, error = trained(interrupt, recover)
    assert isinstance(error, KeyboardInterrupt)
    assert equal(after, expected) and not equal(after, before)


def test_an_error_in_the_optimizer_step_is_rolled_back_with_recovery() -> None:
    before, after, error = trained(lambda: 1 // 0, Recovery(method="range"))
    assert isinstance(error, ZeroDivisionError)
    assert equal(after, before)


def test_an_interrupted_isolated_backward_adds_all_gradients_or_none() -> None:
    def gradients(interrupted_at: int | None) -> list[list[float]]:
        leaves = [torch.ones(3, requires_grad=True) for _ in range(4)]
        model = nn.ParameterList(leaves)
        for leaf in leaves:
            leaf.grad = torch.full((3,), 10.0)
        if interrupted_at is not None:
            leaves[interrupted_at].register_post_accumulate_grad_hook(interrupt)
        loss = torch.stack(list(leaves)).mul(torch.arange(4.0)[:, None]).sum()
        if interrupted_at is None:
            isolated_backward(model, loss)
        else:
            with pytest.raises(KeyboardInterrupt):
                isolated_backward(model, loss)
        return [leaf.grad.tolist() for leaf in leaves if leaf.grad is not None]

    assert gradients(None) == [[10.0 + i] * 3 for i in range(4)]
    for place in range(4):
        assert gradients(place) in ([[10.0] * 3] * 4, gradients(None))


@pytest.mark.parametrize("error", [KeyboardInterrupt, KeyError])
@pytest.mark.parametrize("recover", [None, Recovery(method="range")])
def test_a_users_error_affects_no_later_step(error: type[BaseException], recover: Recovery | None) -> None:
    """Store and loss fail in turn; the next step of the same model equals that of a model without errors."""

    class Rows:
        failing = False

        def __len__(self) -> int:
            return len(X)

        def read(self, ids: Tensor) -> Tensor:
            if self.failing:
                raise error
            return X[ids]

    class Loss(nn.CrossEntropyLoss):
        failing = False

        def forward(self, *args: Tensor) -> Tensor:
            if self.failing:
                raise error
            return super().forward(*args)

    def losses(failing_steps: bool) -> list[float]:
        model = build_model(
            "sage-mean", in_dim=4, hidden_dim=8, out_dim=3, num_layers=2, dropout=0.5, norm="batch"
        ).double()
        optimizer, rows, loss = torch.optim.Adam(model.parameters()), Rows(), Loss()
        rows.failing = loss.failing = False
        out = []
        for _ in range(3):
            if failing_steps:
                for part in (rows, loss):
                    part.failing = True
                    with pytest.raises(error):
                        train_step(
                            model, MICRO[0], rows, Y, loss, optimizer, recover=recover or Recovery(method="range")
                        )
                    part.failing = False
            out.append(float(train_step(model, MICRO[0], rows, Y, loss, optimizer, recover=recover)))
        return out

    assert losses(failing_steps=True) == losses(failing_steps=False)


def test_evaluation_changes_the_mode_of_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.strategies import random_graph

    model = build_model("sage-mean", in_dim=4, hidden_dim=8, out_dim=3, num_layers=2, norm="layer").double()
    model.layers[0].eval()
    modes = [module.training for module in model.modules()]
    meanwhile = []

    def forward(layer: nn.Module, *_: Any) -> None:
        meanwhile.append((layer.training, [module.training for module in model.modules()]))
        interrupt()

    monkeypatch.setattr(type(model.layers[1]), "forward", forward)
    with pytest.raises(KeyboardInterrupt):
        full_neighbour_logits(model, random_graph(40, 300, seed=3), X)
    assert meanwhile == [(False, modes)]
    assert [module.training for module in model.modules()] == modes


def test_an_interrupted_profile_restores_parameters_and_state(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model("sage-mean", in_dim=4, hidden_dim=8, out_dim=3, num_layers=2).double()
    optimizer = torch.optim.Adam(model.parameters())
    train_step(model, MICRO, X, Y, F.cross_entropy, optimizer)
    before = [p.detach().clone() for p in model.parameters()]
    moments = [state["exp_avg"].clone() for state in optimizer.state.values()]
    steps = iter([None, None, interrupt])

    def loss(out: Tensor, y: Tensor, reduction: str) -> Tensor:
        (next(steps, None) or (lambda: None))()
        return F.cross_entropy(out, y, reduction=reduction)

    with pytest.raises(KeyboardInterrupt):
        profile_epoch(model, [MICRO], X, Y, loss, optimizer)
    assert equal([p.detach() for p in model.parameters()], before)
    assert equal([state["exp_avg"] for state in optimizer.state.values()], moments)
