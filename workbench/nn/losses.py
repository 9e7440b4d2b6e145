"""A loss function of torch, or of the user, as a sum over seeds with the weight that its mean divides by."""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

LossFunction = Callable[..., Tensor]
UNLABELLED = -1


@dataclass(frozen=True)
class SeedLoss:
    """Sum of the losses of labelled seeds; where the losses are several a seed, sum of their means.

    Args:
        unreduced: from outputs and labels, a loss for every seed, [n] or [n, …].
        ignore_index: a label that means none, besides −1.
        class_weight: floating [classes], weight of a seed of each class in the mean; None: 1.
        mean: divide by losses a seed.
    """

    unreduced: LossFunction
    ignore_index: int
    class_weight: Tensor | None
    mean: bool

    @staticmethod
    def of(loss_fn: LossFunction, reduction: str) -> "SeedLoss":
        """Read what there is to know from a loss function.

        Raises:
            ValueError: a module, or a function with a bound `reduction`, that reduces otherwise than asked.
        """
        own = _option(loss_fn, "reduction")
        bound = isinstance(loss_fn, nn.Module) or "reduction" in getattr(loss_fn, "keywords", {})
        if bound and own not in (None, "none", reduction):
            raise ValueError(f"loss_fn reduces by {own!r}, the step by {reduction!r}; pass reduction= the same to both")
        ignore_index = _option(loss_fn, "ignore_index")
        by_class = ignore_index is not None  # where there is none, `weight` is a factor that the mean doesn't divide by
        return SeedLoss(
            unreduced=_unreduced(loss_fn),
            ignore_index=ignore_index if by_class else UNLABELLED,
            class_weight=_option(loss_fn, "weight") if by_class else None,
            mean=reduction == "mean",
        )

    def weigh(self, labels: Tensor) -> float:
        """What the labels of these seeds add to the divisor of the batch's mean."""
        labelled = self.labelled(labels)
        count = labels.shape[0] if labelled is None else int(labelled.sum())
        if self.class_weight is None or labelled is None or not count:
            return count
        weight = self.class_weight.to(labels.device, torch.float64)
        return float(weight[labels[labelled].long()].sum())

    def labelled(self, labels: Tensor) -> Tensor | None:
        """bool [n]; None: all."""
        if labels.dim() != 1 or labels.dtype.is_floating_point:
            return None
        labels = labels.long()
        return (labels != UNLABELLED) & (labels != self.ignore_index)

    def __call__(self, out: Tensor, labels: Tensor) -> Tensor:
        """Scalar, in float32 or wider.

        Args:
            out: floating [n, …].
            labels: [n, …], on any device.

        Raises:
            ValueError: another number of losses than seeds.
        """
        labelled = self.labelled(labels)
        if labelled is not None and not labelled.all():
            rows = labelled.nonzero()[:, 0]
            out, labels = out.index_select(0, rows.to(out.device)), labels.index_select(0, rows)
        losses = self.unreduced(out, (labels if labelled is None else labels.long()).to(out.device))
        if losses.dim() == 0 or losses.shape[0] != out.shape[0]:
            raise ValueError(
                f"loss_fn returned shape {tuple(losses.shape)} for {out.shape[0]} seeds; pass a function that takes "
                "reduction= (as torch.nn.functional.cross_entropy does) or returns one loss a seed"
            )
        total = losses.sum(dtype=torch.promote_types(losses.dtype, torch.float32))
        return total / losses.shape[1:].numel() if self.mean else total


def _parameters(loss_fn: LossFunction) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(loss_fn).parameters
    except (TypeError, ValueError):  # built in C
        return {}


def _option(loss_fn: LossFunction, name: str) -> Any:
    """An option as set in a module, or bound or defaulted in a function; None where there is none."""
    if isinstance(loss_fn, nn.Module):
        return getattr(loss_fn, name, None)
    parameter = _parameters(loss_fn).get(name)
    return None if parameter is None or parameter.default is parameter.empty else parameter.default


def _unreduced(loss_fn: LossFunction) -> LossFunction:
    if isinstance(loss_fn, nn.Module) and hasattr(loss_fn, "reduction"):
        loss_fn = copy.copy(loss_fn)
        loss_fn.reduction = "none"  # pyright: ignore[reportArgumentType]
    elif not isinstance(loss_fn, nn.Module) and "reduction" in _parameters(loss_fn):
        return partial(loss_fn, reduction="none")
    return loss_fn
