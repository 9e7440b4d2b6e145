"""`TrainingSetup`: everything that determines a training step except its data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from workbench.memory.backend import Backend
from workbench.memory.recovery import Recovery
from workbench.nn.signature import Forward

Optimizer = str | torch.optim.Optimizer


@dataclass(frozen=True, eq=False)
class TrainingSetup:
    """A model, its optimizer and its loss, and how a training step calls them: what estimates, plans and steps share.

    Args:
        model: the module that is trained, in its current mode (train or eval).
        loss_fn: a function of `(output, labels, reduction=…)`, a loss module of torch, or a function that returns the
            losses of each seed.
        optimizer: an optimizer of the model's parameters; for estimates also "adam", "adamw" or "sgd" with torch's
            defaults.
        reduction: "mean" over labelled seeds, or "sum".
        forward: calls the model with a micro-batch and its `Inputs`, as for `workbench.accumulate`; None for the
            default call. Estimates support the default call only.
        recover: None, or how to recover from out-of-memory errors.
        backend: the kernels that an estimate models: a `Backend`, "cpu" or "cuda"; None for the model's device.
        in_dim: channels of the features; None: for a traced module, the input width of its first layer.
        aggregate_on_read: estimate steps whose features are `workbench.AggregateOnRead(x)`.
    """

    model: nn.Module
    loss_fn: Callable[..., Tensor] = cross_entropy
    optimizer: Optimizer = "adam"
    reduction: str = "mean"
    forward: Forward | None = None
    recover: Recovery | None = None
    backend: Backend | str | None = None
    in_dim: int | None = None
    aggregate_on_read: bool = False

    def __repr__(self) -> str:
        loss, optimizer = getattr(self.loss_fn, "__name__", self.loss_fn), self.optimizer
        name: Any = optimizer if isinstance(optimizer, str) else type(optimizer).__name__
        return f"TrainingSetup({type(self.model).__name__}, {loss}, {name}, {self.reduction})"
