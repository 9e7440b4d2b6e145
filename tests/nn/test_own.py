"""A linear layer that hands on the destinations' own rows, against its plain form."""

import pytest
import torch
from torch import Tensor, nn

from workbench.nn.own import linear_and_own


def gradients(out: Tensor, own: Tensor, linear: nn.Linear, h: Tensor, use: str) -> list[Tensor | None]:
    """Of a sum that weighs what is used."""
    weights = torch.arange(1.0, 4.0, dtype=h.dtype)[:, None]
    loss = torch.zeros((), dtype=h.dtype)
    if use != "own":
        loss = loss + (out[:3] * weights).sum()
    if use != "out":
        loss = loss + (own * weights).sum()
    return list(torch.autograd.grad(loss, [h, linear.weight, linear.bias], allow_unused=True))


@pytest.mark.parametrize("use", ["both", "out", "own"])
def test_gradients_are_those_of_a_slice(use: str) -> None:
    linear, h = nn.Linear(4, 2, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    ours = gradients(*linear_and_own(linear, h, 3), linear, h, use)
    plain = gradients(linear(h), h[:3], linear, h, use)
    for got, wanted in zip(ours, plain, strict=True):
        assert got is not None
        assert torch.allclose(got, torch.zeros_like(got) if wanted is None else wanted)


def test_rows_of_features_ask_for_no_gradient() -> None:
    linear, features = nn.Linear(4, 2), torch.randn(5, 4)
    out, own = linear_and_own(linear, features, 3)
    assert out.requires_grad
    assert not own.requires_grad
    assert torch.equal(own, features[:3])
