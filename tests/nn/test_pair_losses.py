"""Losses of pairs against torch's cross entropy and binary cross entropy."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

import workbench as wb

GENERATOR = torch.Generator().manual_seed(0)
POSITIVE = 3 * torch.randn(7, dtype=torch.float64, generator=GENERATOR)
NEGATIVE = 3 * torch.randn(7, 5, dtype=torch.float64, generator=GENERATOR)
MASK = torch.rand(7, 5, generator=GENERATOR) < 0.4
MASK[3] = True  # a pair of which no negative is left

Loss = Callable[..., Tensor]


def by_cross_entropy(positive: Tensor, negative: Tensor, mask: Tensor) -> Tensor:
    kept = [torch.cat((p[None], n[~m])) for p, n, m in zip(positive, negative, mask, strict=True)]
    return torch.stack([cross_entropy(scores[None], torch.tensor([0])) for scores in kept])


def by_binary_cross_entropy(positive: Tensor, negative: Tensor, mask: Tensor) -> Tensor:
    def one(p: Tensor, n: Tensor) -> Tensor:
        labels = torch.tensor([1.0, *[0.0] * len(n)], dtype=p.dtype)
        return binary_cross_entropy_with_logits(torch.cat((p[None], n)), labels, reduction="sum")

    return torch.stack([one(p, n[~m]) for p, n, m in zip(positive, negative, mask, strict=True)])


ORACLES: list[tuple[Loss, Loss]] = [
    (wb.nn.softmax_pair_loss, by_cross_entropy),
    (wb.nn.logistic_pair_loss, by_binary_cross_entropy),
]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("loss", "oracle"), ORACLES, ids=["softmax", "logistic"])
def test_losses_and_gradients(loss: Loss, oracle: Loss, masked: bool) -> None:
    mask = MASK if masked else None
    found, expected = [], []
    for results, call in ((found, lambda p, n: loss(p, n, mask=mask, reduction="none")), (expected, None)):
        inputs = [x.clone().requires_grad_() for x in (POSITIVE, NEGATIVE)]
        losses = call(*inputs) if call else oracle(*inputs, MASK & masked)
        (losses * torch.arange(1, 8)).sum().backward()
        results += [losses.detach(), *(x.grad for x in inputs)]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loss", [wb.nn.softmax_pair_loss, wb.nn.logistic_pair_loss])
def test_reductions(loss: Loss) -> None:
    each = loss(POSITIVE, NEGATIVE, reduction="none")
    assert torch.equal(loss(POSITIVE, NEGATIVE, reduction="sum"), each.sum())
    torch.testing.assert_close(loss(POSITIVE, NEGATIVE), each.mean())


def test_softmax_of_large_scores() -> None:
    positive, negative = torch.tensor([1e4, -1e4]), torch.tensor([[-1e4], [1e4]])
    negative.requires_grad_()
    losses = wb.nn.softmax_pair_loss(positive, negative, reduction="none")
    losses.sum().backward()
    assert losses.tolist() == [0, 2e4] and negative.grad is not None and negative.grad.tolist() == [[0], [1]]


def test_softmax_without_negatives_is_zero() -> None:
    assert wb.nn.softmax_pair_loss(POSITIVE, NEGATIVE[:, :0]) == 0


@pytest.mark.parametrize(
    ("error", "match", "arguments"),
    [
        (TypeError, "positive is a list", {"positive": [1.0]}),
        (ValueError, r"negative has shape \(7,\)", {"negative": NEGATIVE[:, 0]}),
        (ValueError, "positive has .*6", {"positive": POSITIVE[1:]}),
        (ValueError, r"mask is torch.float32 .*must be bool \(7, 5\)", {"mask": MASK.float()}),
        (ValueError, "reduction 'max' is not known", {"reduction": "max"}),
    ],
)
def test_refusals(error: type[Exception], match: str, arguments: dict[str, Any]) -> None:
    losses: list[Loss] = [wb.nn.softmax_pair_loss, wb.nn.logistic_pair_loss]
    for loss in losses:
        with pytest.raises(error, match=match):
            loss(**{"positive": POSITIVE, "negative": NEGATIVE} | arguments)
