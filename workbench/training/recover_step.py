"""An optimizer's step that runs out of memory leaves nothing half updated, and is tried once more in less memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from workbench.training.recover import attempt

_NO_ROOM = (
    "There was no room for the copy of what the optimizer's step changes. No step was taken; nothing has changed."
)
_TWICE = (
    "The optimizer's step ran out of memory twice, the second time with foreach=False. No step was taken: parameters, "
    "gradients and optimizer state are as before. Use an optimizer with less state, or a smaller model."
)


def step_or_put_back(optimizer: torch.optim.Optimizer) -> None:
    """Take a step; if memory runs out in it, put everything back and take it one parameter at a time.

    A step that fails has updated some of the parameters, and of one the state but not the value, so what it may change
    is copied first: parameters, gradients (some optimizers add to them in place), state and options. The copy is on
    the host, in pinned memory where they are on a GPU, which does not wait for it. Nothing cheaper is right for every
    optimizer: updates can't be undone by arithmetic to the last bit, and which tensors a step changes, and when, is its
    own affair. What an optimizer keeps elsewhere than in `state` and `param_groups` is not put back.

    Args:
        optimizer: with gradients in place; its step takes no closure.

    Raises:
        torch.OutOfMemoryError: memory ran out again, or for the copy (or another error that says so). As after any
            other error, all is as before.
    """
    put_back = attempt(partial(_copy, optimizer), last_note=_NO_ROOM)
    assert not isinstance(put_back, Exception)
    if isinstance(attempt(optimizer.step, put_back), Exception):
        with _one_at_a_time(optimizer):
            attempt(optimizer.step, put_back, _TWICE)


def _copy(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    """A function that puts all back in place: tensors are overwritten, state that came later is dropped."""
    values, spec = tree_flatten((dict(optimizer.state), optimizer.param_groups))
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = [(p, p.grad) for p in parameters]
    tensors = [t for t in (*values, *(grad for _, grad in gradients)) if isinstance(t, Tensor)]
    copies = [(t, _on_host(t)) for t in tensors]

    @torch.no_grad()
    def put_back() -> None:
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

    return put_back


def _on_host(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    if not tensor.is_cuda or tensor.layout is not torch.strided:
        return tensor.to("cpu", copy=True)
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)


@contextmanager
def _one_at_a_time(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Without foreach, whose lists of intermediate results take as much as the parameters; fused steps take none."""
    before = [(group, group["foreach"]) for group in optimizer.param_groups if "foreach" in group]
    for group, _ in before:
        group["foreach"] = False
    try:
        yield
    finally:
        for group, foreach in before:
            group["foreach"] = foreach
