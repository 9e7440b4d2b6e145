"""Out-of-memory recovery of the optimizer step: roll back everything it changed and retry with less memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from workbench.training.oom import attempt

_OOM_IN_BACKUP = (
    "Memory ran out while copying the tensors that the optimizer step changes. No step was taken; nothing has changed."
)
_OOM_TWICE = (
    "The optimizer step ran out of memory twice, the second time with foreach=False. No step was taken: parameters, "
    "gradients and optimizer state are as before. Use an optimizer with less state, or a smaller model."
)


def step_with_oom_recovery(optimizer: torch.optim.Optimizer) -> None:
    """Take an optimizer step; if it runs out of memory, roll back and take it one parameter at a time.

    A failed step has updated some parameters, and possibly the state of one but not its value, so everything that a
    step may change is copied first: parameters, gradients (which some optimizers modify in place), state and options.
    The copy is on the host, asynchronous and pinned if the tensors are on a GPU. A cheaper backup would not be correct
    for every optimizer: updates can't be inverted exactly, and which tensors a step changes, and when, differs. State
    that an optimizer keeps outside of `state` and `param_groups` is not rolled back.

    Args:
        optimizer: an optimizer with gradients in place, whose step needs no closure.

    Raises:
        torch.OutOfMemoryError: Memory ran out twice, or for the copy (or another error that `is_out_of_memory`). As
            after any other error, parameters, gradients and state are as before.
    """
    restore = attempt(partial(_snapshot, optimizer), final_note=_OOM_IN_BACKUP)
    assert not isinstance(restore, Exception)
    if isinstance(attempt(optimizer.step, restore), Exception):
        with _without_foreach(optimizer):
            attempt(optimizer.step, restore, _OOM_TWICE)


def _snapshot(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    """Copy everything that a step may change; returns a function that restores it in place and drops newer state."""
    values, spec = tree_flatten((dict(optimizer.state), optimizer.param_groups))
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = [(p, p.grad) for p in parameters]
    tensors = [t for t in (*values, *(grad for _, grad in gradients)) if isinstance(t, Tensor)]
    copies = [(t, _copy_to_host(t)) for t in tensors]

    @torch.no_grad()
    def restore() -> None:
        for tensor, copy in copies:
            tensor.copy_(copy, non_blocking=True)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        state, groups = tree_unflatten(values, spec)
        optimizer.state.clear()
        optimizer.state.update(state)
        for group, before in zip(optimizer.param_groups, groups, strict=True):
            group.clear()
            group.update(before)

    return restore


def _copy_to_host(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    if not tensor.is_cuda or tensor.layout is not torch.strided:
        return tensor.to("cpu", copy=True)
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)


@contextmanager
def _without_foreach(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Disable foreach, whose lists of temporaries need as much memory as the parameters; fused steps need none."""
    before = [(group, group["foreach"]) for group in optimizer.param_groups if "foreach" in group]
    for group, _ in before:
        group["foreach"] = False
    try:
        yield
    finally:
        for group, foreach in before:
            group["foreach"] = foreach
