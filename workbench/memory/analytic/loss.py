"""Losses on fake tensors: `workbench.nn.losses.SeedLoss` over torch's loss functions."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import nn
from torch.nn import functional

from workbench.memory.analytic.fake_autograd import FakeAutograd, FakeTensor
from workbench.nn.losses import check_loss

LABEL_BYTES = 8

SimulateLoss = Callable[[FakeAutograd, FakeTensor], FakeTensor]


def simulate_cross_entropy(autograd: FakeAutograd, out: FakeTensor) -> FakeTensor:
    """Cross-entropy over labelled seeds: saves labels and log-probabilities, but not the loss per seed.

    The labels of the whole batch are on the host (`kept_label_bytes`); on a GPU, those of the micro-batch are copied.
    """
    autograd.term = "loss"
    labels = autograd.empty(out.rows if autograd.on_cuda else 0, 1, LABEL_BYTES, "labels")
    labelled = autograd.allocator.allocate(out.rows, "labels")
    autograd.allocator.allocate_temporary(2 * labelled.nbytes, "labels")
    log_probabilities = autograd.empty_like(out)
    losses, loss = autograd.empty(out.rows, 1, out.itemsize), autograd.empty(1, 1, 4)
    del labelled, losses

    rows, cols, itemsize = out.rows, out.cols, out.itemsize

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        picked = autograd.empty(rows, cols, itemsize)
        return [autograd.empty_like(picked)]

    autograd.record([loss], [out], backward, saves=[labels, log_probabilities])
    return loss


def simulate_binary_cross_entropy(autograd: FakeAutograd, out: FakeTensor) -> FakeTensor:
    """Binary cross-entropy: saves the output, and labels of the output's shape and dtype."""
    autograd.term = "loss"
    labels = autograd.empty_like(out, "labels")
    losses, loss = autograd.empty_like(out), autograd.empty(1, 1, 4)
    del losses
    rows, cols, itemsize = out.rows, out.cols, out.itemsize

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        for_out = autograd.empty(rows, cols, itemsize)
        autograd.allocate_temporary(for_out.nbytes)
        return [for_out]

    autograd.record([loss], [out], backward, saves=[labels, out])
    return loss


def kept_label_bytes(simulate: SimulateLoss, num_seeds: int, *, on_cuda: bool) -> int:
    """Bytes on the device of the labels that are read before a step's first micro-batch and kept until its last.

    Args:
        simulate: the simulation of the loss. Only integer classes are kept (`workbench.BatchLoss`).
        num_seeds: seeds of the whole batch.
        on_cuda: the step runs on a GPU, and the labels are on the host.
    """
    return LABEL_BYTES * num_seeds if simulate is simulate_cross_entropy and not on_cuda else 0


_LOSSES: Mapping[Any, SimulateLoss] = MappingProxyType(
    {
        functional.cross_entropy: simulate_cross_entropy,
        nn.CrossEntropyLoss: simulate_cross_entropy,
        functional.binary_cross_entropy_with_logits: simulate_binary_cross_entropy,
        nn.BCEWithLogitsLoss: simulate_binary_cross_entropy,
    }
)
_UNSUPPORTED = ("label_smoothing", "pos_weight")
_UNSUPPORTED_BY_BINARY = ("weight", *_UNSUPPORTED)
"""Options for which torch allocates tensors that are not simulated."""


def loss_simulation(loss_fn: Callable[..., Any]) -> SimulateLoss:
    """Look up the simulation of a loss function.

    Args:
        loss_fn: torch's `cross_entropy` (integer labels) or `binary_cross_entropy_with_logits` (labels in the model's
            dtype), or their modules; `ignore_index` and the class weights of `cross_entropy` may be set.

    Raises:
        TypeError: It is no function, or a class instead of an instance.
        ValueError: The loss function, or one of its options, is not supported.
    """
    check_loss(loss_fn)
    inner = loss_fn.func if isinstance(loss_fn, partial) else loss_fn
    simulate = _LOSSES.get(type(inner) if isinstance(inner, nn.Module) else inner)
    if simulate is None:
        raise ValueError(
            f"loss_fn {getattr(inner, '__name__', inner)!r} is not supported by the memory estimate; estimate with "
            "cross_entropy or binary_cross_entropy_with_logits, whichever has labels of the same shape"
        )
    options = loss_fn.keywords if isinstance(loss_fn, partial) else vars(inner)
    options = {**options, **getattr(inner, "_buffers", {})}
    unsupported = _UNSUPPORTED if simulate is simulate_cross_entropy else _UNSUPPORTED_BY_BINARY
    if used := [name for name in unsupported if _is_set(options.get(name))]:
        raise ValueError(
            f"loss_fn with {used[0]} is not supported by the memory estimate; estimate without it and reserve memory "
            "for its tensors"
        )
    return simulate


def _is_set(option: Any) -> bool:
    return option is not None and not (isinstance(option, float) and option == 0)
