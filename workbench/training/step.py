"""One optimizer step on one batch, whole or in micro-batches."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import check_choice
from workbench.core.interrupts import deferred_interrupt
from workbench.core.minibatch import MiniBatch
from workbench.nn.losses import LossFunction, SeedLoss
from workbench.training.accumulate import Phase, accumulate, unmeasured
from workbench.training.arguments import as_batches, check_model, check_optimizer, check_trains
from workbench.training.recover import Recovery, check_recover
from workbench.training.recover_step import step_or_put_back
from workbench.training.rows import check_covers, read_rows


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
    """Train on one batch: zero the gradients, add up those of its micro-batches, take one optimizer step.

    Loss, gradients and step are those of the whole batch, up to rounding. An interrupt (Ctrl-C) leaves the step taken
    whole or not at all.

    Args:
        model: see `workbench.accumulate`.
        micro: the micro-batches (`mb.split(part)`), or one batch; moved to the model's device one at a time.
        x: features [num_nodes, …] by raw-graph id: a tensor, an array or anything with `.read(ids)`, on any device;
            gathered where they are.
        y: labels by raw-graph id, likewise. Integers [num_nodes] are classes, −1 (and the `ignore_index` of `loss_fn`)
            for none; anything else, as multi-labels [num_nodes, classes], counts in full.
        loss_fn: a function that takes `(output, labels, reduction=…)`, as those of `torch.nn.functional` do (bind
            options with `functools.partial`), a module that has `.reduction`, as those of `torch.nn` do, or a function
            that returns the losses of each seed, [seeds] or [seeds, …].
        optimizer: of the model's parameters.
        reduction: "mean" over labelled seeds (and classes, where `loss_fn` gives one loss each; class weights divide by
            the sum of weights, as in torch), or "sum".
        phase: see `workbench.accumulate`; entered besides as "step", around zeroing and around the optimizer's step.
        recover: see `workbench.accumulate` for what runs out of memory before the step. For the optimizer's step, what
            it changes is copied to the host first: on the CPU that takes memory, as much as parameters, gradients and
            optimizer state. If it runs out of memory, all that is put back and it is tried once more, one parameter
            at a time (`foreach=False`).

    Returns:
        The batch's loss, detached. The gradients stay in `.grad`.

    Raises:
        ValueError: no labelled seeds, class weights that add up to 0, a `loss_fn` that gives no loss a seed or refuses
            the labels, gradients switched off; or, before any work, an optimizer that takes a closure (LBFGS) or holds
            none of the model's parameters that require a gradient.
        TypeError: an argument of another kind, features of another dtype than the model's parameters, or layers of
            another library.
        IndexError: features or labels end before the ids of the batch, or a class beyond the model's output.
        torch.OutOfMemoryError: memory ran out; with `recover`, for a single seed or twice in the optimizer's step. Then
            no step was taken: parameters and optimizer state are as before. `.grad` may hold a part of the batch, which
            the next step zeroes.
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
        raise ValueError(f"none of the batch's {seeds} seeds has a label; sample labelled seeds (y ≥ 0)")
    scale = 1.0 / total if reduction == "mean" else 1.0

    def loss_of(out: Tensor, mb: MiniBatch) -> Tensor:
        return seed_loss(out, read_rows(y, mb.seeds)) * scale

    phase = phase or unmeasured
    with phase("step"):
        optimizer.zero_grad()
        model.zero_grad()  # the optimizer may hold some of the parameters only
    loss = accumulate(model, batches, lambda mb: read_rows(x, mb.node_ids), loss_of, phase=phase, recover=recover)
    with phase("step"), deferred_interrupt():
        if recover is None:
            optimizer.step()
        else:
            step_or_put_back(optimizer)
    return loss
