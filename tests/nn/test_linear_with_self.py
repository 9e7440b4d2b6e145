"""A linear layer that also returns the destinations' own rows, against a slice; one whose result a sum overwrites."""

import pytest
import torch
from torch import Tensor, nn

from workbench.meter.peak import measure_peak
from workbench.nn.linear_with_self import add_to_linear, linear_with_self


def gradients(out: Tensor, h_dst: Tensor, linear: nn.Linear, h: Tensor, use: str) -> list[Tensor | None]:
    """Return the gradients of a weighted sum of the outputs that are used."""
    weights = torch.arange(1.0, 4.0, dtype=h.dtype)[:, None]
    loss = torch.zeros((), dtype=h.dtype)
    if use != "h_dst":
        loss = loss + (out[:3] * weights).sum()
    if use != "out":
        loss = loss + (h_dst * weights).sum()
    return list(torch.autograd.grad(loss, [h, linear.weight, linear.bias], allow_unused=True))


@pytest.mark.parametrize("use", ["both", "out", "h_dst"])
def test_gradients_are_those_of_a_slice(use: str) -> None:
    linear, h = nn.Linear(4, 2, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    ours = gradients(*linear_with_self(h, 3, linear.weight, linear.bias), linear, h, use)
    plain = gradients(linear(h), h[:3], linear, h, use)
    for got, expected in zip(ours, plain, strict=True):
        assert got is not None
        assert torch.allclose(got, torch.zeros_like(got) if expected is None else expected)


def test_features_require_no_gradient() -> None:
    linear, features = nn.Linear(4, 2), torch.randn(5, 4)
    out, h_dst = linear_with_self(features, 3, linear.weight, linear.bias)
    assert out.requires_grad
    assert not h_dst.requires_grad
    assert torch.equal(h_dst, features[:3])


@pytest.mark.parametrize("register", ["register_forward_hook", "register_full_backward_hook"])
def test_a_result_that_a_hook_has_kept_is_not_overwritten(register: str) -> None:
    linear, h, other = nn.Linear(3, 2), torch.randn(4, 3, requires_grad=True), torch.randn(4, 2)
    seen: list[Tensor] = []
    getattr(linear, register)(
        lambda module, inputs, outputs: seen.append(outputs if register == "register_forward_hook" else outputs[0])
    )
    out = add_to_linear(linear, h, other)
    out.sum().backward()
    linear_result = nn.functional.linear(h, linear.weight, linear.bias)
    torch.testing.assert_close(out, linear_result + other)
    forward = register == "register_forward_hook"
    torch.testing.assert_close(seen[0], linear_result if forward else torch.ones(4, 2))


def test_a_sum_overwrites_the_result_of_the_linear_layer() -> None:
    linear, h, other = nn.Linear(30, 200), torch.randn(400, 30), torch.randn(400, 200)
    add_to_linear(linear, h, other)
    assert measure_peak(lambda: add_to_linear(linear, h, other)) == 4 * 400 * 200
