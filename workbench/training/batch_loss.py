"""`BatchLoss`: the loss of a batch as the sum of its micro-batches' losses, whose labels are read once."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import check_choice, check_type
from workbench.core.minibatch import MiniBatch
from workbench.features.protocols import FeatureStore
from workbench.features.sources import as_store, check_covers
from workbench.nn.losses import LossFunction, SeedLoss
from workbench.training.arguments import as_batches

Total = float | Callable[[float], float]
"""What a mean divides by, or a function that computes it from this process's share (an all-reduce, for example)."""


@dataclass(frozen=True, eq=False)
class BatchLoss:
    """The loss of a batch, called as `loss(output, mb)` for one micro-batch at a time: `accumulate`'s `loss_of`.

    Build it with `BatchLoss.of`. Integer classes are read at construction, to count the labelled seeds, and kept (8
    bytes per seed of the batch); labels of any other kind are read when their micro-batch runs.

    Args:
        seed_loss: sum of the losses of labelled seeds.
        y: the store of labels by raw-graph id.
        labels: the labels that have been read, by micro-batch.
        weight: what this process's seeds add to the divisor of the mean: the number of labelled seeds, or the sum of
            their class weights.
        divisor: what the sum of losses is divided by; 1 for reduction "sum".
    """

    seed_loss: SeedLoss
    y: FeatureStore
    labels: Mapping[MiniBatch, Tensor]
    weight: float
    divisor: float

    @staticmethod
    def of(
        micro: MiniBatch | Iterable[MiniBatch],
        y: Any,
        loss_fn: LossFunction,
        *,
        reduction: str = "mean",
        total: Total | None = None,
    ) -> "BatchLoss":
        """Read the labels of a batch's micro-batches and count the labelled seeds.

        Args:
            micro: the micro-batches of this process, or one batch.
            y: labels by raw-graph id: a tensor, an array or an object with `.read(ids)`, as for `workbench.train_step`.
            loss_fn: a loss function that `workbench.train_step` accepts.
            reduction: "mean" over labelled seeds, or "sum".
            total: what the mean divides by; None: `weight`, the labelled seeds of `micro`. A number or a function of
                `weight`, called once on every process: with W processes whose gradients are summed, the sum of their
                weights; with `DistributedDataParallel`, which averages gradients, that sum divided by W.

        Raises:
            ValueError: No seed has a label (with `total`, of any process), `total` is not positive or is passed for
                reduction "sum", or class weights add up to 0.
            TypeError: `y` or `loss_fn` is of another type.
            IndexError: `y` has too few rows.
        """
        check_choice("reduction", reduction, ("mean", "sum"))
        if reduction == "sum" and total is not None:
            raise ValueError(f"total is {total!r}, but reduction 'sum' divides by nothing; omit total")
        batches, seed_loss, y = as_batches(micro), SeedLoss.of(loss_fn, reduction), as_store(y, "y")
        for mb in batches:
            check_covers("y", y, mb.seeds)
        labels, weight = _read(batches, y, seed_loss)
        divisor = _number(total(weight) if callable(total) else weight if total is None else total)
        if not weight and not divisor:
            seeds = sum(mb.num_seeds for mb in batches)
            raise ValueError(f"none of the batch's {seeds} seeds has a label; sample seeds with labels (y ≥ 0)")
        if not 0 < divisor < math.inf:
            raise ValueError(
                f"total is {divisor}; pass the positive number of labelled seeds of all processes, or a function that "
                "computes it from this process's: total=lambda weight: …"
            )
        return BatchLoss(seed_loss, y, labels, weight, divisor if reduction == "mean" else 1.0)

    def __call__(self, out: Tensor, mb: MiniBatch) -> Tensor:
        """Compute a micro-batch's part of the loss, a scalar.

        Args:
            out: floating [num_seeds, …], the model's output.
            mb: the micro-batch, or a piece of one.
        """
        labels = self.labels.get(mb)
        return self.seed_loss(out, self.y.read(mb.seeds) if labels is None else labels) * (1.0 / self.divisor)


def _read(batches: list[MiniBatch], y: FeatureStore, seed_loss: SeedLoss) -> tuple[dict[MiniBatch, Tensor], float]:
    """Return the labels by micro-batch, views of one tensor, and their weight; no labels if all seeds have one."""
    sizes = [mb.num_seeds for mb in batches]
    seeds = torch.cat([mb.seeds for mb in batches]) if batches else torch.empty(0, dtype=torch.int64)
    if seed_loss.labelled(y.read(seeds[:0])) is None:
        return {}, len(seeds)
    labels = y.read(seeds)
    return dict(zip(batches, labels.split(sizes), strict=True)), seed_loss.weigh(labels)


def _number(total: Any) -> float:
    check_type("total", total, (Real, Tensor), "pass a number, or a function of this process's weight that returns one")
    return float(total)
