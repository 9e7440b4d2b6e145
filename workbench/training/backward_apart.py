"""Gradients of a micro-batch beside those that were there, until all of them are."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from workbench.core.interrupts import deferred_interrupt


def backward_apart(model: nn.Module, loss: Tensor) -> None:
    """Add the gradients of a loss to `.grad` once all of them are there; on an error `.grad` stays as it was.

    In this order: what `.grad` holds is put aside; the backward pass makes fresh gradients (hooks see these); they are
    added to the earlier ones in place, one parameter at a time, each freed when it is added. So for the length of a
    backward pass there is room for the gradients twice, if there were any before.

    Args:
        model: its parameters, and other leaves that the loss depends on, get gradients.
        loss: scalar.
    """
    leaves = dict.fromkeys([*(p for p in model.parameters() if p.requires_grad), *_leaves(loss)])
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
    elif earlier.is_sparse:  # a dense one can't be added to it in place
        fresh.add_(earlier)
    else:
        leaf.grad = earlier.add_(fresh)


def _leaves(loss: Tensor) -> Iterator[Tensor]:
    """Leaves that get gradients in the backward pass: a model's parameters, but also features that learn."""
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name() == "torch::autograd::AccumulateGrad":
            yield node.variable  # pyright: ignore[reportAttributeAccessIssue]
        waiting += [before for before, _ in node.next_functions]
