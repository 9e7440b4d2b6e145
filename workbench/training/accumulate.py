"""One batch's gradients from its micro-batches, one after the other."""

import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from workbench.core.errors import check_type
from workbench.core.minibatch import MiniBatch
from workbench.nn.call import call_model, model_device, wanted_names
from workbench.training.arguments import as_batches, check_differentiable, check_model
from workbench.training.backward_apart import backward_apart
from workbench.training.recover import Recovery, check_recover, check_recoverable, run_or_cut

Phase = Callable[[str], AbstractContextManager[Any]]
"""What times or meters a step: called with a phase's name, entered while the phase runs (`Stopwatch.phase`, say)."""

_NOTHING = nullcontext()


def accumulate(
    model: nn.Module,
    micro: MiniBatch | Iterable[MiniBatch],
    read: Callable[[MiniBatch], Any],
    loss_of: Callable[[Any, MiniBatch], Tensor],
    *,
    phase: Phase | None = None,
    recover: Recovery | None = None,
) -> Tensor:
    """Add the gradients of a batch to `.grad`, micro-batch by micro-batch.

    For each in turn: read its features, run the model, take its share of the loss, backward. Batch and features go to
    the model's device, and of what one micro-batch made there nothing is left when the next begins.

    Args:
        model: called with `(mb.blocks, x)`, and with those of `node_ids` and `step` that its `forward`
            names (or takes as `**kwargs`). Data-parallel wrappers reduce gradients after the last micro-batch.
        micro: the micro-batches (`mb.split(part)`), or one batch.
        read: features [num_inputs, …] of a micro-batch as it stands in `micro`, on any device.
        loss_of: from the model's output [num_seeds, …] and the micro-batch as it stands in `micro`, a scalar: its share
            of the batch's loss. The shares add up to the loss, so a mean divides by the count of the *whole* batch.
        phase: entered, for each micro-batch in this order, as "fetch" (features are read), "transfer" (they and the
            blocks go to the device), "forward" (model and loss) and "backward". With `recover` an attempt that fails
            enters them too, up to where it fails, and each part then enters all of them.
        recover: None: a micro-batch that runs out of memory ends the batch, its gradients partly added. Else, wherever
            it runs out, it is cut, and its parts (whose `parent` says where they were in the same batch) take its
            place: the sum of gradients stays the same, up to rounding. Buffers and torch's random state (of the CPU and
            the model's device) are put back first, and nothing of the failed attempt is left. This takes room for the
            gradients twice, from the second micro-batch on, or from the first if `.grad` held any: see
            `workbench.training.backward_apart`; and for a copy of the buffers.

    Returns:
        The batch's loss, detached; 0 without micro-batches.

    Raises:
        ValueError: `loss_of` returned something else than a scalar, or a loss without a gradient (`torch.no_grad`, a
            frozen model); a batch has exchanges; or `recover` is asked for a data-parallel model or edge weights that
            learn.
        TypeError: an argument of another kind, or a model that can't be called so, as layers of other libraries.
        torch.OutOfMemoryError: memory ran out; with `recover`, for a single seed. Then, as with any other error,
            `.grad` holds the micro-batches (and parts) that were complete; buffers and random state are as before the
            one that failed. MemoryError and the RuntimeError of torch's CPU allocator are taken, and raised, likewise.

    Warns:
        RuntimeWarning: a BatchNorm would take the statistics of each micro-batch instead of the batch's.

    Source: Betty (ASPLOS 2023), section 4.2: gradients are those of the whole batch.
    """
    check_recover(recover)
    check_model(model)
    batches = as_batches(micro)
    if any(mb.exchanges is not None for mb in batches):
        raise ValueError("a batch has exchanges: its blocks read rows of other processes, not fetched here")
    if len(batches) > 1:
        _warn_of_batch_statistics(model)
    names = wanted_names(model)
    device = model_device(model)
    backward = Tensor.backward if recover is None else partial(backward_apart, model)

    def run(mb: MiniBatch) -> Tensor:
        return _backward(model, mb, read, loss_of, names, device, phase or unmeasured, backward)

    if recover is not None:
        check_recoverable(model, batches)
        run = partial(run_or_cut, run, model, device, recover, partial(_warn_of_batch_statistics, model))
    total = torch.zeros((), device=device)
    for position, mb in enumerate(batches):
        with _reduced_later(model, position + 1 < len(batches)):
            total = total + run(mb)
    return total


def unmeasured(name: str) -> AbstractContextManager[Any]:
    """A phase that nobody measures."""
    return _NOTHING


def _backward(
    model: nn.Module,
    mb: MiniBatch,
    read: Callable[[MiniBatch], Any],
    loss_of: Callable[[Any, MiniBatch], Tensor],
    names: list[str],
    device: torch.device | None,
    phase: Phase,
    backward: Callable[[Tensor], object],
) -> Tensor:
    """A function of its own, so that all it made dies with it."""
    with phase("fetch"):
        x = read(mb)
    with phase("transfer"):
        # Moved even where nothing moves: what layers cache in a block (its transpose, say) stays with the copy.
        # No layer reads where nodes were in the batch.
        moved = replace(mb, parent=None).to(mb.device if device is None else device)
        if isinstance(x, Tensor) and device is not None:
            x = x.to(device)
    with phase("forward"):
        loss = loss_of(call_model(model, moved, x, names), mb)
    check_type("what loss_of returned", loss, Tensor, "return a scalar tensor, its share of the batch's loss")
    if loss.dim() != 0:
        raise ValueError(f"loss_of returned shape {tuple(loss.shape)}; return a scalar, its share of the batch's loss")
    check_differentiable(loss)
    with phase("backward"):
        backward(loss)
    return loss.detach()


def _reduced_later(model: nn.Module, later: bool) -> AbstractContextManager:
    """Data-parallel models reduce gradients in every backward pass unless told not to."""
    no_sync = getattr(model, "no_sync", None)
    return no_sync() if later and no_sync is not None else nullcontext()


def _warn_of_batch_statistics(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None):
            warnings.warn(
                f"{name or type(module).__name__} takes its statistics from each micro-batch, so gradients differ from "
                "the whole batch's; use LayerNorm, put it in eval mode, or train on one micro-batch",
                RuntimeWarning,
                stacklevel=3,
            )
            return
