"""`train_step`: one optimizer step on a batch, whole or split into micro-batches."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import check_choice
from workbench.core.interrupts import deferred_interrupt
from workbench.core.minibatch import MiniBatch
from workbench.features.store import check_covers, read_rows
from workbench.nn.losses import LossFunction, SeedLoss
from workbench.training.accumulate import Phase, accumulate, unmeasured
from workbench.training.arguments import as_batches, check_model, check_optimizer, check_trains
from workbench.training.oom import Recovery, check_recover
from workbench.training.oom_step import step_with_oom_recovery


def train_step(
    model: nn.Module,
    micro: MiniBatch | Iterable[MiniBatch],
    x: Any,
    y: Any,
    loss_fn: LossFunction,
    optimizer: torch.optim.Optimizer,
    *,
    reduction: str = "mean",
    phase: Phase | None = None,
    recover: Recovery | None = None,
) -> Tensor:
    """Train on one batch: zero the gradients, accumulate those of its micro-batches, take one optimizer step.

    Loss, gradients and step equal those of the whole batch, up to rounding. On an interrupt (Ctrl-C) the optimizer step
    is either taken completely or not at all.

    Args:
        model: called with `(mb.blocks, x)`, and with `node_ids=` and `step=` if its `forward` has parameters of these
            names (or `**kwargs`).
        micro: the micro-batches (`mb.split(part)`), or one batch; moved to the model's device one at a time.
        x: features [num_nodes, …] by raw-graph id: a tensor, an array or an object with `.read(ids)`, on any device;
            rows are gathered on that device.
        y: labels by raw-graph id: a tensor, an array or an object with `.read(ids)`. Integers [num_nodes] are classes,
            with −1 (and the `ignore_index` of `loss_fn`) for unlabelled nodes; any other labels, such as multi-labels
            [num_nodes, classes], have no unlabelled nodes.
        loss_fn: a function of `(output, labels, reduction=…)`, like those of `torch.nn.functional` (bind options with
            `functools.partial`); a module with `.reduction`, like those of `torch.nn`; or a function that returns the
            losses of each seed, [seeds] or [seeds, …].
        optimizer: an optimizer of the model's parameters.
        reduction: "mean" over labelled seeds (and over classes, if `loss_fn` returns one loss per class; with class
            weights, divided by the sum of weights as in torch), or "sum".
        phase: entered as "fetch", "transfer", "forward" and "backward" for each micro-batch, and as "step" around
            zeroing the gradients and around the optimizer step.
        recover: None, or how to recover from out-of-memory errors: a micro-batch that fails is rolled back and split.
            Before the optimizer step, everything it changes is copied to the host (parameters, gradients and optimizer
            state, which on the CPU takes that much memory); if the step fails, it is rolled back and retried once, one
            parameter at a time (`foreach=False`).

    Returns:
        The batch's loss, detached. The gradients remain in `.grad`.

    Raises:
        ValueError: No seed has a label, class weights add up to 0, `loss_fn` returns no loss per seed or refuses the
            labels, or gradients are disabled; or, before any work, the optimizer requires a closure (LBFGS) or has none
            of the model's parameters that require a gradient.
        TypeError: An argument has the wrong type, features have another dtype than the model's parameters, or the
            model contains layers of another library.
        IndexError: Features or labels have too few rows for the ids of the batch, or a class exceeds the model's
            output.
        torch.OutOfMemoryError: Memory ran out; with `recover`, for a single seed or twice in the optimizer step. No
            step was taken: parameters and optimizer state are as before. `.grad` may contain a part of the batch,
            which the next step zeroes.
    """
    check_choice("reduction", reduction, ("mean", "sum"))
    check_recover(recover)
    check_model(model)
    batches = as_batches(micro)
    seed_loss = SeedLoss.of(loss_fn, reduction)
    check_optimizer(optimizer)
    check_trains(optimizer, model, batches, x, loss_fn)
    for mb in batches:
        check_covers("x", x, mb.node_ids)
        check_covers("y", y, mb.seeds)
    total = sum(seed_loss.weigh(read_rows(y, mb.seeds)) for mb in batches)
    if not total:
        seeds = sum(mb.num_seeds for mb in batches)
        raise ValueError(f"none of the batch's {seeds} seeds has a label; sample seeds with labels (y ≥ 0)")
    scale = 1.0 / total if reduction == "mean" else 1.0

    def loss_of(out: Tensor, mb: MiniBatch) -> Tensor:
        return seed_loss(out, read_rows(y, mb.seeds)) * scale

    phase = phase or unmeasured
    with phase("step"):
        optimizer.zero_grad()
        model.zero_grad()  # the optimizer may have only some of the parameters
    loss = accumulate(model, batches, lambda mb: read_rows(x, mb.node_ids), loss_of, phase=phase, recover=recover)
    with phase("step"), deferred_interrupt():
        if recover is None:
            optimizer.step()
        else:
            step_with_oom_recovery(optimizer)
    return loss
