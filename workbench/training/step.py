"""`train_step`: one optimizer step on a batch, whole or split into micro-batches."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import check_choice, check_type, deferred_interrupt
from workbench.core.minibatch import MiniBatch
from workbench.features.memory_rows import as_store, check_covers
from workbench.features.protocols import FeatureStore
from workbench.memory.training_setup import Recovery, TrainingSetup, check_recover
from workbench.meter.stopwatch import Phase, unmeasured
from workbench.nn.losses import Inputs, LossFunction, SeedLoss
from workbench.nn.signature import Forward
from workbench.training.accumulate import After, accumulate
from workbench.training.aggregated_rows import AggregateOnRead, sources_of
from workbench.training.arguments import (
    as_batches,
    check_halo,
    check_model,
    check_optimizer,
    check_trains,
    exchanged_noted,
)
from workbench.training.fetched import BatchRows
from workbench.training.oom import step_with_oom_recovery

BeforeStep = Callable[[], object]
"""Called between the last backward pass of a batch and the optimizer step."""

Total = float | Callable[[float], float]
"""What a mean divides by, or a function that computes it from this process's share (an all-reduce, for example)."""


def train_step(
    model: nn.Module,
    micro: MiniBatch | Iterable[MiniBatch],
    x: Any,
    y: Any,
    loss_fn: LossFunction,
    optimizer: torch.optim.Optimizer,
    *,
    reduction: str = "mean",
    total: Total | None = None,
    forward: Forward | None = None,
    after: After | None = None,
    before_step: BeforeStep | None = None,
    phase: Phase | None = None,
    recover: Recovery | None = None,
    verify: bool = True,
) -> Tensor:
    """Train on one batch: zero the gradients, accumulate those of its micro-batches, take one optimizer step.

    Loss, gradients and step equal those of the whole batch, up to rounding. On an interrupt (Ctrl-C) the optimizer step
    is either taken completely or not at all. A loop with a step of its own (scaled losses, several optimizers) calls
    `workbench.accumulate` with a `workbench.BatchLoss` instead.

    Args:
        model: called with `(mb.blocks, x)`, and with `node_ids=` and `step=` if its `forward` has parameters of these
            names (or `**kwargs`), unless `forward` is given.
        micro: the micro-batches (`mb.split(part)`), or one batch; moved to the model's device one at a time.
        x: features [num_nodes, …] by raw-graph id: a tensor, an array or an object with `.read(ids)`, on any device;
            rows are gathered on that device. Or `AggregatedRows` or `Inputs` of two such sources: features, and the
            precomputed aggregate of the first layer, whose block the micro-batches then lack. Or `AggregateOnRead(x)`,
            from which that aggregate is computed without gathering the rows of the first layer's sources.
        y: labels by raw-graph id: a tensor, an array or an object with `.read(ids)`. Integers [num_nodes] are classes,
            with −1 (and the `ignore_index` of `loss_fn`) for unlabelled nodes; any other labels, such as multi-labels
            [num_nodes, classes], have no unlabelled nodes. Labels are read once per micro-batch, classes all at the
            start.
        loss_fn: a function of `(output, labels, reduction=…)`, like those of `torch.nn.functional` (bind options with
            `functools.partial`); a module with `.reduction`, like those of `torch.nn`; or a function that returns the
            losses of each seed, [seeds] or [seeds, …]. If the model returns a tuple, list or dictionary of tensors, the
            function receives it whole (with the rows of labelled seeds); several losses are added up seed by seed.
        optimizer: an optimizer of the model's parameters.
        reduction: "mean" over labelled seeds (and over classes, if `loss_fn` returns one loss per class; with class
            weights, divided by the sum of weights as in torch), or "sum".
        total: what the mean divides by if other processes train on a part of the batch: the number of labelled seeds of
            all processes, or a function that computes it from this process's number (an all-reduce), as for
            `workbench.BatchLoss.of`. The loss returned is then this process's part. None: this process's number.
        forward: calls the model with a micro-batch and its `Inputs`, both on the model's device, and returns the output
            [num_seeds, …], as for `workbench.accumulate`. None for the default call.
        after: called with each micro-batch and its `Inputs` once its gradients are complete, as for
            `workbench.accumulate`.
        before_step: called without arguments when the gradients of the whole batch are complete, before the optimizer
            step: the place to clip them, `lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)`. If it
            raises, no step is taken. Estimates do not include what it allocates.
        phase: entered as "fetch", "transfer", "forward", "backward" and, with `after`, "after" for each micro-batch,
            and as "step" around zeroing the gradients and around `before_step` and the optimizer step.
        recover: None, or how to recover from out-of-memory errors: a micro-batch that fails is rolled back and split.
            Before the optimizer step, everything it changes is copied to the host (parameters, gradients and optimizer
            state, which on the CPU takes that much memory); if the step fails, it is rolled back and retried once, one
            parameter at a time (`foreach=False`).
        verify: check once per model, before its first step in micro-batches, that these are exact, and warn if not, as
            for `workbench.accumulate`.

    Returns:
        The batch's loss, detached. The gradients remain in `.grad`.

    Raises:
        ValueError: No seed has a label, class weights add up to 0, `loss_fn` returns no loss per seed or refuses the
            labels, gradients are disabled, or `total` is not positive; or, before any work, the optimizer requires a
            closure (LBFGS) or has none of the model's parameters that require a gradient, or a batch has exchanges
            (without `forward`, which may use them).
        TypeError: An argument has the wrong type, features have another dtype than the model's parameters, or the
            model contains layers of another library.
        IndexError: Features or labels have too few rows for the ids of the batch, or a class exceeds the model's
            output.
        torch.OutOfMemoryError: Memory ran out; with `recover`, for a single seed or twice in the optimizer step. No
            step was taken: parameters and optimizer state are as before. `.grad` may contain a part of the batch,
            which the next step zeroes.
    """
    setup = TrainingSetup(model, loss_fn, optimizer, reduction=reduction, forward=forward, recover=recover)
    options = {"before_step": before_step, "phase": phase, "verify": verify}
    return train_step_with(setup, micro, x, y, total=total, after=after, **options)


def train_step_with(
    setup: TrainingSetup,
    micro: MiniBatch | Iterable[MiniBatch],
    x: Any,
    y: Any,
    *,
    total: Total | None = None,
    after: After | None = None,
    before_step: BeforeStep | None = None,
    phase: Phase | None = None,
    verify: bool = True,
) -> Tensor:
    """Train on one batch as `workbench.train_step` does, with the model, loss, optimizer and options of a setup."""
    model, optimizer = setup.model, setup.optimizer
    check_recover(setup.recover)
    check_model(model)
    batches, sources = as_batches(micro), sources_of(x)
    check_halo(batches, setup.forward)
    read, forward = x.step_of(setup) if isinstance(x, AggregateOnRead) else (None, setup.forward)
    check_optimizer(optimizer)
    assert not isinstance(optimizer, str)
    if before_step is not None:
        check_type("before_step", before_step, Callable, "pass a function without arguments that clips gradients, say")
    check_trains(optimizer, model, batches, sources, setup.loss_fn)
    stores = as_stores(sources, batches)
    loss_of = BatchLoss.of(batches, y, setup.loss_fn, reduction=setup.reduction, total=total)
    phase = phase or unmeasured
    with phase("step"):
        optimizer.zero_grad()
        model.zero_grad()  # the optimizer may have only some of the parameters
    options = {"forward": forward, "after": after, "phase": phase, "recover": setup.recover, "verify": verify}
    with exchanged_noted(sources.x, y):
        loss = accumulate(model, batches, read or partial(_read, stores), loss_of, **options)
    del loss_of  # its labels
    with phase("step"):
        if before_step is not None:
            before_step()
        with deferred_interrupt():
            if setup.recover is None:
                optimizer.step()
            else:
                step_with_oom_recovery(optimizer)
    return loss


def as_stores(sources: Inputs, batches: list[MiniBatch]) -> Inputs:
    """Wrap the sources of features in stores, once for all micro-batches, and check that they have all rows."""
    x = as_store(sources.x, "x")
    aggregated = None if sources.aggregated is None else as_store(sources.aggregated, "aggregated")
    for mb in batches:
        check_covers("x", x, mb.node_ids)
        if aggregated is not None:
            check_covers("aggregated", aggregated, mb.node_ids)
    return Inputs(x, aggregated)


def _read(stores: Inputs, mb: MiniBatch) -> Inputs:
    """Gather a micro-batch's rows from stores by raw-graph id."""
    x, aggregated = stores.x, stores.aggregated
    return Inputs(x.read(mb.node_ids), None if aggregated is None else aggregated.read(mb.node_ids))


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
                weights; with `DistributedDataParallel`, which averages gradients, that sum divided by W. For reduction
                "sum", a function is called alike, so that a process may lack labelled seeds, but nothing is divided.

        Raises:
            ValueError: No seed has a label (with `total`, of any process), `total` is not positive or is a number for
                reduction "sum", or class weights add up to 0.
            TypeError: `y` or `loss_fn` is of another type.
            IndexError: `y` has too few rows.
        """
        check_choice("reduction", reduction, ("mean", "sum"))
        if reduction == "sum" and total is not None and not callable(total):
            raise ValueError(f"total is {total!r}, but reduction 'sum' divides by nothing; omit total")
        batches, seed_loss, y = as_batches(micro), SeedLoss.of(loss_fn, reduction), as_store(y, "y")
        for mb in batches:
            check_covers("y", y, mb.seeds)
        labels, weight = _read_labels(batches, y, seed_loss)
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
        """
        labels = self.labels.get(mb)
        copy = self.y.copy_of(mb.seeds) if isinstance(self.y, BatchRows) else None
        return self.seed_loss(out, self.y.read(mb.seeds) if labels is None else labels, copy) * (1.0 / self.divisor)


def _read_labels(
    batches: list[MiniBatch], y: FeatureStore, seed_loss: SeedLoss
) -> tuple[dict[MiniBatch, Tensor], float]:
    """Return the labels by micro-batch, views of one tensor, and their weight; no labels if all seeds have one."""
    sizes = [mb.num_seeds for mb in batches]
    parts = [mb.seeds for mb in batches] or [torch.empty(0, dtype=torch.int64)]
    seeds = torch.cat(parts) if len(parts) > 1 else parts[0]
    if seed_loss.labelled(y.read(seeds[:0])) is None:
        return {}, len(seeds)
    labels = y.read(seeds)
    return dict(zip(batches, labels.split(sizes), strict=True)), seed_loss.weigh(labels)


def _number(total: Any) -> float:
    check_type("total", total, (Real, Tensor), "pass a number, or a function of this process's weight that returns one")
    return float(total)
