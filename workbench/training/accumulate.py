"""Gradient accumulation: a batch's gradients, computed one micro-batch at a time."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import check_type
from workbench.core.minibatch import MiniBatch
from workbench.core.shared_storage import same_record
from workbench.memory.training_setup import Recovery, check_recover
from workbench.meter.stopwatch import Phase, unmeasured
from workbench.nn.losses import Inputs
from workbench.nn.signature import Forward, default_forward, model_device
from workbench.training.arguments import (
    as_batches,
    check_differentiable,
    check_halo,
    check_model,
    check_read_and_loss,
    refuse_pair_loss,
)
from workbench.training.exactness.check import known_model, warn_if_inexact
from workbench.training.oom import check_recoverable, isolated_backward, run_with_oom_recovery

After = Callable[[MiniBatch, Inputs], object]
"""Called with a micro-batch and its inputs once its gradients are complete."""


def accumulate(
    model: nn.Module,
    micro: MiniBatch | Iterable[MiniBatch],
    read: Callable[[MiniBatch], Any],
    loss_of: Callable[[Any, MiniBatch], Tensor],
    *,
    forward: Forward | None = None,
    after: After | None = None,
    phase: Phase | None = None,
    recover: Recovery | None = None,
    verify: bool = True,
) -> Tensor:
    """Accumulate the gradients of a batch in `.grad`, one micro-batch at a time.

    For each micro-batch: read its inputs, run the model, compute its part of the loss, run backward. Blocks and inputs
    are moved to the model's device, and everything a micro-batch allocates is freed before the next one starts.

    Args:
        model: receives the gradients. Data-parallel wrappers reduce them after the last micro-batch.
        micro: the micro-batches (`mb.split(part)`), or one batch.
        read: maps a micro-batch of `micro` to its features [num_inputs, …], or to `Inputs`, on any device.
        loss_of: maps the model's output [num_seeds, …] and the micro-batch of `micro` to a scalar, its part of the
            batch's loss. The parts add up to the loss, so a mean divides by the count of the *whole* batch
            (`workbench.BatchLoss` does).
        forward: calls the model with a micro-batch and its `Inputs`, both on the model's device, and returns what
            `loss_of` accepts: the place of autocast, gradient checkpointing, exchanges and auxiliary outputs. None:
            `model(mb.blocks, inputs.x)`, with `node_ids=` and `step=` if its `forward` has parameters of these names
            (or `**kwargs`), and with `aggregated=` if the inputs contain an aggregate.
        after: called for each micro-batch of `micro` with the `Inputs` that `read` returned, when its backward pass has
            succeeded and before the next one starts. If `read` returned a leaf that requires a gradient
            (`rows.requires_grad_()`), `inputs.x.grad` is the gradient of its rows, on the device of the rows. With
            `recover`, called once for each piece that succeeded; an error in it is raised.
        phase: entered for each micro-batch, in this order, as "fetch" (read inputs), "transfer" (move inputs and blocks
            to the device), "forward" (model and loss), "backward" and, with `after`, "after". With `recover`, a failed
            attempt enters the phases up to the failure, and each piece then enters all of them.
        recover: None: an out-of-memory (OOM) error ends the batch, its gradients partly added. A `Recovery`: on an OOM
            error, buffers and torch's random state (of the CPU and the model's device) are rolled back, everything the
            attempt allocated is freed, and the micro-batch is split into pieces that run instead (their `parent` refers
            to the same batch). The sum of gradients is the same up to rounding. Requires memory for a copy of the
            buffers and, if gradients exist before a micro-batch, for two sets of gradients
            (`workbench.training.oom`). A micro-batch is split by its seeds, so a loss over the pairs of
            an `EdgeBatch` is refused.
        verify: with more than one micro-batch, check once per model that they compute the same as the whole batch
            (`workbench.check_exact`, with the first micro-batch and its inputs), and warn if not. Models from
            `workbench.build_model` are known, at no price, unless `forward` calls them.

    Returns:
        The batch's loss, detached; 0 without micro-batches.

    Raises:
        ValueError: `loss_of` returned a tensor that is not a scalar or has no gradient (`torch.no_grad`, a frozen
            model); a batch has exchanges, which only `forward` can use; or `recover` is set for a data-parallel model,
            trainable edge weights, exchanges or a loss over the pairs of an `EdgeBatch`.
        TypeError: An argument has the wrong type, or the model can't be called this way, like layers of other
            libraries.
        torch.OutOfMemoryError: Memory ran out; with `recover`, for a single seed. Then, as after any other error,
            `.grad` contains the micro-batches (and pieces) that completed, and with `recover` buffers and random state
            are as before the one that failed. MemoryError and the RuntimeError of torch's CPU allocator are handled,
            and raised, in the same way.

    Warns:
        RuntimeWarning: A layer looks across the batch (BatchNorm, GCN normalised by out-degrees, …), so gradients are
            not those of the whole batch; the message names it and an alternative.

    Source: Betty (ASPLOS 2023), section 4.2: the accumulated gradients are those of the whole batch.
    """
    check_recover(recover)
    check_model(model)
    batches = as_batches(micro)
    check_halo(batches, forward)
    check_read_and_loss(read, loss_of)
    device, known = model_device(model), known_model(model, forward)
    checks = verify and not (known is not None and known.exact)  # once here: modules take long to walk in every part
    run = _MicroBatchRun(
        read=read,
        forward=forward or default_forward(model),
        loss_of=loss_of,
        after=after,
        backward=Tensor.backward if recover is None else partial(isolated_backward, model),
        device=device,
        phase=phase or unmeasured,
        verify=partial(warn_if_inexact, model, forward, batches if len(batches) > 1 else None) if checks else None,
        splits=Event(),
    )
    if len(batches) > 1:
        run.splits.set()
    if recover is not None:
        check_recoverable(model, batches)
        refuse_pair_loss(loss_of)
        complete = partial(run_with_oom_recovery, run, model, device, recover, run.splits.set)
    else:
        complete = run.completely
    total = torch.zeros((), device=device)
    for position, mb in enumerate(batches):
        with _reduced_later(model, position + 1 < len(batches)):
            total = total + complete(mb)
    return total


@dataclass(frozen=True, eq=False)
class _MicroBatchRun:
    """Forward and backward pass of a micro-batch; the arguments are those of `accumulate`.

    `splits` is set when the batch is known to run in several micro-batches, from the start or after an OOM error.
    """

    read: Callable[[MiniBatch], Any]
    forward: Forward
    loss_of: Callable[[Any, MiniBatch], Tensor]
    after: After | None
    backward: Callable[[Tensor], object]
    device: torch.device | None
    phase: Phase
    verify: Callable[[MiniBatch, Inputs], None] | None
    splits: Event

    def __call__(self, mb: MiniBatch) -> Callable[[], Tensor]:
        """Add the gradients; all tensors are freed on return, but for those that `after` receives.

        Returns:
            A function that calls `after` and returns the loss.
        """
        with self.phase("fetch"):
            inputs = Inputs.of(self.read(mb))
        if self.verify is not None and self.splits.is_set():
            self.verify(mb, inputs)
        complete = partial(self._complete, mb, None if self.after is None else inputs)
        with self.phase("transfer"):
            # A new record even if the batch is on the device already, so that arrays that layers cache in its blocks
            # (such as the transpose) are freed with it. Layers do not read `parent`.
            on_device = same_record(mb, parent=None).to(
                mb.device if self.device is None else self.device, non_blocking=True
            )
            inputs = inputs.to(self.device)
        with self.phase("forward"):
            loss = self.loss_of(self.forward(on_device, inputs), mb)
        _check_loss(loss)
        with self.phase("backward"):
            self.backward(loss)
        torch.clear_autocast_cache()  # converted weights, which would also be outdated after the optimizer's step
        return partial(complete, loss.detach())

    def completely(self, mb: MiniBatch) -> Tensor:
        """Add the gradients, call `after` and return the loss."""
        return self(mb)()

    def _complete(self, mb: MiniBatch, inputs: Inputs | None, loss: Tensor) -> Tensor:
        if self.after is not None and inputs is not None:
            with self.phase("after"):
                self.after(mb, inputs)
        return loss


def _check_loss(loss: Any) -> None:
    remedy = "return a scalar tensor, the micro-batch's part of the batch's loss"
    check_type("the result of loss_of", loss, Tensor, remedy)
    if loss.dim() != 0:
        raise ValueError(f"loss_of returned shape {tuple(loss.shape)}; {remedy}")
    check_differentiable(loss)


def _reduced_later(model: nn.Module, later: bool) -> AbstractContextManager:
    """Defer a data-parallel model's gradient reduction, which otherwise runs in every backward pass."""
    no_sync = getattr(model, "no_sync", None)
    return no_sync() if later and no_sync is not None else nullcontext()
