"""Scores, losses and gradients of pairs in half precision against float64: no sum or square is in half precision."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench.kernels.gather import add_rows, add_rows_torch
from workbench.nn.decoders import pair_rows
from workbench.nn.pair_losses import softmax_products

HALF = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}  # distance of numbers from 1 on
pytestmark = pytest.mark.parametrize("dtype", HALF)


def normal(*shape: int, std: float = 1.0) -> Tensor:
    return std * torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


@pytest.mark.parametrize("loss", [wb.nn.softmax_pair_loss, wb.nn.logistic_pair_loss])
def test_losses_of_many_negatives(dtype: torch.dtype, loss: Callable[..., Tensor]) -> None:
    """The sum over 100,000 negatives is infinite in float16, and has two digits in bfloat16."""
    given = [torch.zeros(3, dtype=dtype), normal(3, 100_000, std=0.1).to(dtype)]
    ours, exact = ([x.to(kind, copy=True).requires_grad_() for x in given] for kind in (dtype, torch.float64))
    for reduction in ("none", "sum", "mean"):
        found, expected = loss(*ours, reduction=reduction), loss(*exact, reduction=reduction)
        torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
    found, expected = torch.autograd.grad(found, ours), torch.autograd.grad(expected, exact)
    for mine, right in zip(found, expected, strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine.double(), right, rtol=HALF[dtype], atol=6e-8)


def test_gradients_of_products(dtype: torch.dtype) -> None:
    """Gradients of single scores, 5e-5 · p, are below the least float16; their sums over pairs are not."""
    given = [normal(4, count, 16, std=0.3).to(dtype) for count in (500, 500, 300)]
    ours, exact = ([x.to(kind, copy=True).requires_grad_() for x in given] for kind in (dtype, torch.float64))
    found, expected = softmax_products(*ours, factor=5e-5), softmax_products(*exact, factor=5e-5)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
    found, expected = torch.autograd.grad(found, ours), torch.autograd.grad(expected, exact)
    for mine, right in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.double(), right, rtol=HALF[dtype], atol=6e-8)


def test_gradients_of_a_row_of_many_pairs(dtype: torch.dtype) -> None:
    """Summed in half precision, 50,000 addends of 0.1 stop at 256 in float16 and at 32 in bfloat16."""
    h = torch.ones(3, 2, dtype=dtype, requires_grad=True)
    ends = torch.zeros(30_000, dtype=torch.int64), torch.arange(60_000) % 3
    rows = pair_rows(h, *ends)
    grads = [torch.full_like(r, 0.1) for r in rows]
    (found,) = torch.autograd.grad(rows, h, grads)
    expected = float(grads[0][0, 0]) * torch.tensor([50_000.0, 20_000.0, 20_000.0])[:, None].expand(3, 2)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=2 * HALF[dtype], atol=0)


@pytest.mark.parametrize("add", [add_rows, add_rows_torch])
def test_sums_of_rows(dtype: torch.dtype, add: Callable[..., None]) -> None:
    out = torch.full((2, 1), 0.5, dtype=dtype)
    add(out, torch.zeros(50_000, dtype=torch.int64), torch.full((50_000, 1), 0.1, dtype=dtype))
    expected = 0.5 + 50_000 * float(torch.tensor(0.1, dtype=dtype))
    assert float(out[0]) == pytest.approx(expected, rel=HALF[dtype]) and float(out[1]) == 0.5


@pytest.mark.parametrize("p", [1, 2])
def test_distances(dtype: torch.dtype, p: int) -> None:
    """Squared norms of 512 values of 12 are beyond float16; those of close rows have no digit of their difference."""
    decoder = wb.nn.TransE(512, num_relations=0, p=p)
    far = normal(40, 512, std=4.0)
    rows = torch.cat((far, far[:8] + normal(8, 512, std=0.05), torch.full((1, 512), 12.0))).to(dtype)
    scores = decoder.compare_all(rows[:8], rows)
    exact = -(rows[:8, None].double() - rows[None].double()).abs().pow(p).sum(-1).pow(1 / p)
    assert scores.dtype == dtype and bool(torch.isfinite(scores).all())
    own = torch.eye(8, len(rows), dtype=torch.bool)  # distance 0, of which rounding of squared norms leaves some
    torch.testing.assert_close(scores[~own].double(), exact[~own], rtol=max(2e-3, HALF[dtype]), atol=0)
