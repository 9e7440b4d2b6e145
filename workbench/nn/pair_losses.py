"""Losses of link prediction: positive pairs against their negatives."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from workbench.core.errors import check_choice, check_type, check_vector
from workbench.kernels.segment import compute_dtype

_REDUCTIONS = ("none", "sum", "mean")


def softmax_pair_loss(
    positive: Tensor, negative: Tensor, *, mask: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Cross entropy of each positive pair among itself and its negatives: `−f + log(exp f + Σ_j exp f_j)`.

    Args:
        positive: floating [n], scores of the pairs; losses of half precision are computed in float32.
        negative: floating [n, k], scores of their negatives.
        mask: bool [n, k], negatives to leave out (`workbench.false_negatives`); None: none.
        reduction: "mean" or "sum" over the pairs, or "none": [n].

    Raises:
        TypeError: scores or a mask of another type.
        ValueError: shapes that do not match, or an unknown reduction.

    Source: the softmax loss of MariusGNN (EuroSys 2023) and PyTorch-BigGraph (Lerer et al., MLSys 2019).
    """
    _check(positive, negative, mask)
    return _reduced(_CrossEntropy.apply(*_wide(positive, negative), mask), reduction)


def logistic_pair_loss(
    positive: Tensor, negative: Tensor, *, mask: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Logistic loss of each positive pair and all its negatives: `log(1 + exp(−f)) + Σ_j log(1 + exp f_j)`.

    Args:
        positive: floating [n], scores of the pairs; losses of half precision are computed in float32.
        negative: floating [n, k], scores of their negatives.
        mask: bool [n, k], negatives to leave out (`workbench.false_negatives`); None: none.
        reduction: "mean" or "sum" over the pairs, or "none": [n].

    Raises:
        TypeError: scores or a mask of another type.
        ValueError: shapes that do not match, or an unknown reduction.

    Source: Trouillon et al., "Complex embeddings for simple link prediction" (ICML 2016), section 4.1.
    """
    _check(positive, negative, mask)
    positive, negative = _wide(positive, negative)
    losses = softplus(negative)
    if mask is not None:
        losses = losses.masked_fill(mask, 0)
    return _reduced(softplus(-positive) + losses.sum(1), reduction)


class _CrossEntropy(torch.autograd.Function):
    """Losses [n] of the softmax; keeps its exponentials, so that the backward pass computes none."""

    @staticmethod
    def forward(ctx: Any, positive: Tensor, negative: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:
            negative = negative.masked_fill(mask, -torch.inf)
        highest = positive if not negative.shape[1] else torch.maximum(positive, negative.amax(1))
        exponentials = torch.sub(negative, highest[:, None]).exp_()
        own = (positive - highest).exp_()
        total = exponentials.sum(1).add_(own)
        ctx.save_for_backward(exponentials, own, total)
        return total.log() + (highest - positive)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        exponentials, own, total = ctx.saved_tensors
        scale = grad / total
        return own * scale - grad, exponentials * scale[:, None], None


def _wide(*scores: Tensor) -> list[Tensor]:
    """Scores in the dtype of losses: a sum over 65,504 negatives or more is infinite in float16."""
    return [s.to(compute_dtype(s)) for s in scores]


def _check(positive: Tensor, negative: Tensor, mask: Tensor | None) -> None:
    for name, scores in (("positive", positive), ("negative", negative)):
        check_type(name, scores, Tensor, "pass scores of a decoder")
    if negative.dim() != 2:
        raise ValueError(f"negative has shape {tuple(negative.shape)}; pass [{len(positive)}, negatives per pair]")
    check_vector("positive", positive, len(negative), (positive.dtype,))
    if mask is not None and (mask.dtype != torch.bool or mask.shape != negative.shape):
        raise ValueError(f"mask is {mask.dtype} {tuple(mask.shape)}; it must be bool {tuple(negative.shape)}")


def _reduced(losses: Tensor, reduction: str) -> Tensor:
    check_choice("reduction", reduction, _REDUCTIONS)
    if reduction == "none":
        return losses
    total = losses.sum()
    return total / len(losses) if reduction == "mean" else total
