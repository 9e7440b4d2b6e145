"""Computes a micro-batch's gradients separately and adds them to `.grad` only if the backward pass succeeds."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from workbench.core.interrupts import deferred_interrupt


def isolated_backward(model: nn.Module, loss: Tensor) -> None:
    """Add the gradients of a loss to `.grad` after the backward pass has succeeded; on an error `.grad` is unchanged.

    Earlier gradients are set aside, the backward pass computes fresh ones (which hooks see), and these are added to the
    earlier ones in place, one parameter at a time, each freed once added. If there were earlier gradients, the backward
    pass therefore needs memory for two sets of gradients.

    Args:
        model: its parameters, and all other leaves that the loss depends on, receive gradients.
        loss: scalar.
    """
    leaves = dict.fromkeys([*(p for p in model.parameters() if p.requires_grad), *leaves_of(loss)])
    earlier = [(leaf, leaf.grad) for leaf in leaves]
    try:
        for leaf in leaves:
            leaf.grad = None
        loss.backward()
        with deferred_interrupt():
            while earlier:
                _add(*earlier.pop())
    except BaseException:
        for leaf, grad in earlier:
            leaf.grad = grad
        raise


@torch.no_grad()
def _add(leaf: Tensor, earlier: Tensor | None) -> None:
    fresh = leaf.grad
    if earlier is None or fresh is None:
        leaf.grad = fresh if earlier is None else earlier
    elif earlier.is_sparse:  # adding in place to a sparse gradient would fail for a dense one
        fresh.add_(earlier)
    else:
        leaf.grad = earlier.add_(fresh)


def leaves_of(loss: Tensor) -> Iterator[Tensor]:
    """Yield the leaves of the autograd graph: parameters of the model, but also trainable features."""
    stack, visited = [loss.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        if node.name() == "torch::autograd::AccumulateGrad":
            yield node.variable  # pyright: ignore[reportAttributeAccessIssue]
        stack += [following for following, _ in node.next_functions]
