"""Sums over pieces of a batch against torch's mean and sum over the whole batch."""

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.nn.losses import SeedLoss

CLASSES = 4
WEIGHT = torch.tensor([0.5, 2.0, 1.0, 3.0], dtype=torch.float64)
OUT = torch.linspace(-3, 3, 11 * CLASSES, dtype=torch.float64).cos().view(11, CLASSES)
LABELS = torch.tensor([0, 1, 2, 3, -1, 1, 0, -1, -1, -1, 2])
MULTI = (OUT.flip(0) > 0).double()
PIECES = [slice(0, 1), slice(1, 7), slice(7, 10), slice(10, 11)]  # the third has no labels

FUNCTIONS_OF_CLASSES = [
    F.cross_entropy,
    partial(F.cross_entropy, weight=WEIGHT),
    partial(F.cross_entropy, weight=WEIGHT, label_smoothing=0.1),
    partial(F.cross_entropy, ignore_index=2),
    partial(F.nll_loss, weight=WEIGHT),
    F.multi_margin_loss,
]
MODULES_OF_CLASSES = [
    partial(nn.CrossEntropyLoss, weight=WEIGHT),
    partial(nn.CrossEntropyLoss, ignore_index=2),
    nn.NLLLoss,
    partial(nn.MultiMarginLoss, weight=WEIGHT),
]
FUNCTIONS_OF_VALUES = [
    F.binary_cross_entropy_with_logits,
    partial(F.binary_cross_entropy_with_logits, weight=WEIGHT),
    partial(F.binary_cross_entropy_with_logits, pos_weight=WEIGHT),
    F.cross_entropy,  # with probabilities
    F.mse_loss,
    F.smooth_l1_loss,
]


def in_pieces(loss_fn: Any, labels: Tensor, reduction: str) -> tuple[Tensor, Tensor]:
    """Sum the losses of the pieces; return the sum and its gradient."""
    out = OUT.clone().requires_grad_()
    seed_loss = SeedLoss.of(loss_fn, reduction)
    total = sum(seed_loss.weigh(labels[piece]) for piece in PIECES) if reduction == "mean" else 1.0
    loss = sum((seed_loss(out[piece], labels[piece]) / total for piece in PIECES), torch.zeros(()))
    return loss, torch.autograd.grad(loss, out)[0]


def at_once(loss_fn: Any, labels: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    out = OUT.clone().requires_grad_()
    loss = loss_fn(out[rows], labels[rows])
    return loss, torch.autograd.grad(loss, out)[0]


def assert_same(loss_fn: Any, reduction: str, labels: Tensor, whole: Any) -> None:
    rows = (labels != -1).nonzero()[:, 0] if labels.dim() == 1 else torch.arange(len(labels))
    for ours, theirs in zip(in_pieces(loss_fn, labels, reduction), at_once(whole, labels, rows), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("loss_fn", FUNCTIONS_OF_CLASSES)
def test_functions_of_classes(loss_fn: Any, reduction: str) -> None:
    assert_same(loss_fn, reduction, LABELS, partial(loss_fn, reduction=reduction))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("module", MODULES_OF_CLASSES)
def test_modules_of_classes(module: Any, reduction: str) -> None:
    loss_fn = module(reduction=reduction)
    assert_same(loss_fn, reduction, LABELS, loss_fn)
    assert loss_fn.reduction == reduction


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("loss_fn", FUNCTIONS_OF_VALUES)
def test_functions_of_float_labels(loss_fn: Any, reduction: str) -> None:
    assert_same(loss_fn, reduction, MULTI, partial(loss_fn, reduction=reduction))


def test_a_function_may_return_one_loss_per_seed() -> None:
    def hinge(out: Tensor, labels: Tensor) -> Tensor:
        return (1 - out.gather(1, labels[:, None])[:, 0]).relu()

    assert_same(hinge, "mean", LABELS, lambda out, labels: hinge(out, labels).mean())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int8, torch.uint8, torch.int16])
def test_classes_of_any_integer_dtype(dtype: torch.dtype) -> None:
    seed_loss = SeedLoss.of(F.cross_entropy, "sum")
    labels = torch.tensor([1, 2], dtype=dtype)
    torch.testing.assert_close(seed_loss(OUT[:2], labels), F.cross_entropy(OUT[:2], labels.long(), reduction="sum"))


def test_half_precision_is_summed_in_single() -> None:
    out = torch.full((4096, 1), 30.0, dtype=torch.float16)
    assert float(SeedLoss.of(F.mse_loss, "sum")(out, torch.zeros_like(out))) == 4096 * 900  # past float16's 65504


def test_scalar_losses_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(\) for 7 seeds, .*; pass a function that accepts reduction="):
        SeedLoss.of(lambda out, labels: F.cross_entropy(out, labels), "mean")(OUT, LABELS)


@pytest.mark.parametrize(("out", "labels"), [(OUT[:, :1], LABELS.double()), (OUT[:, 0], LABELS[:, None].double())])
def test_broadcast_losses_are_refused(out: Tensor, labels: Tensor) -> None:
    """Every output would be compared with every label."""
    squared = SeedLoss.of(lambda out, y: (out - y).square(), "mean")
    with pytest.raises(ValueError, match=r"broadcast an output of .* to \(11, 11\); pass both of one shape, such as y"):
        squared(out, labels)
    assert squared(out.reshape(11, 1), labels.reshape(11, 1)).shape == ()
    assert squared(out.reshape(-1)[:1], labels.reshape(-1)[:1]).shape == ()


@pytest.mark.parametrize(("labels", "column"), [(LABELS, ""), (LABELS[:, None], r"\[:, 0\]")])
def test_nan_labels_are_explained(labels: Tensor, column: str) -> None:
    labels = torch.where(labels < 0, torch.nan, labels.double())
    with pytest.raises(ValueError, match=r"Labels are NaN; .*torch\.where\(y\.isnan\(\), -1, y\)\.long\(\)" + column):
        SeedLoss.of(F.cross_entropy, "mean")(OUT, labels)


@pytest.mark.parametrize("loss_fn", [F.cross_entropy, nn.CrossEntropyLoss()])
def test_a_cross_entropy_of_one_column_is_refused(loss_fn: Any) -> None:
    """Classes that were converted to labels [n, 1]: the softmax of one column is 1."""
    column = (LABELS > 0).double()[:, None]
    assert float(F.cross_entropy(OUT[:, :1], column)) == 0
    with pytest.raises(ValueError, match=r"one column is 0 whatever the model computes; pass classes, y\[:, 0\]"):
        SeedLoss.of(loss_fn, "mean")(OUT[:, :1], column)
    binary = SeedLoss.of(F.binary_cross_entropy_with_logits, "sum")(OUT[:, :1], column)
    torch.testing.assert_close(binary, F.binary_cross_entropy_with_logits(OUT[:, :1], column, reduction="sum"))


@pytest.mark.parametrize("loss_fn", [F.cross_entropy, nn.CrossEntropyLoss(reduction="none"), F.nll_loss])
def test_several_classes_per_seed_of_which_some_are_ignored(loss_fn: Any) -> None:
    """Torch's mean leaves them out of the divisor, for which all labels would have to be read beforehand."""
    out, labels = OUT.T[:, :10].reshape(2, CLASSES, 5).contiguous(), LABELS[:10].view(2, 5).clamp(min=0)
    torch_loss = F.nll_loss if loss_fn is F.nll_loss else F.cross_entropy
    torch.testing.assert_close(SeedLoss.of(loss_fn, "mean")(out, labels) / 2, torch_loss(out, labels))
    labels[0, 3] = -100
    total = torch_loss(out, labels, reduction="sum")
    torch.testing.assert_close(SeedLoss.of(loss_fn, "sum")(out, labels), total)
    with pytest.raises(ValueError, match=r"y contains -100, which loss_fn ignores, in integers of shape \[5\] per"):
        SeedLoss.of(loss_fn, "mean")(out, labels)


def test_modules_that_reduce_differently_are_refused() -> None:
    with pytest.raises(ValueError, match="reduces by 'sum', the step by 'mean'"):
        SeedLoss.of(nn.CrossEntropyLoss(reduction="sum"), "mean")
    with pytest.raises(ValueError, match="batchmean"):
        SeedLoss.of(nn.KLDivLoss(reduction="batchmean"), "mean")
    SeedLoss.of(nn.CrossEntropyLoss(reduction="none"), "mean")


def test_functions_without_a_signature_are_accepted() -> None:
    assert SeedLoss.of(torch.dist, "mean").ignore_index == -1


def test_labels_out_of_range_name_label_and_classes() -> None:
    with pytest.raises(IndexError, match=r"class 4, but the model's output has 4 columns; classes must be in \[0, 4\)"):
        SeedLoss.of(F.cross_entropy, "mean")(OUT[:1], torch.tensor([CLASSES]))
