"""What losses hold: `workbench.nn.losses.SeedLoss` over those of torch."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import nn
from torch.nn import functional

from workbench.memory.analytic.tape import Shadow, Tape

_LABEL_BYTES = 8

PriceLoss = Callable[[Tape, Shadow], Shadow]


def price_cross_entropy(tape: Tape, out: Shadow) -> Shadow:
    """Labels and log-probabilities are saved, losses of seeds are not; all seeds have labels."""
    tape.term = "loss"
    labels = tape.new(out.rows, 1, _LABEL_BYTES, "labels")
    labelled = tape.ledger.hold(out.rows, "labels")
    tape.ledger.touch(2 * labelled.nbytes, "labels")
    log_probabilities = tape.like(out)
    losses, loss = tape.new(out.rows, 1, out.itemsize), tape.new(1, 1, 4)
    del labelled, losses

    rows, cols, itemsize = out.rows, out.cols, out.itemsize

    def backward(grad: Shadow) -> Sequence[Shadow | None]:
        picked = tape.new(rows, cols, itemsize)
        return [tape.like(picked)]

    tape.record([loss], [out], backward, saves=[labels, log_probabilities])
    return loss


def price_binary(tape: Tape, out: Shadow) -> Shadow:
    """Labels as wide as the output are saved, and the output."""
    tape.term = "loss"
    labels = tape.like(out, "labels")
    losses, loss = tape.like(out), tape.new(1, 1, 4)
    del losses
    rows, cols, itemsize = out.rows, out.cols, out.itemsize

    def backward(grad: Shadow) -> Sequence[Shadow | None]:
        made = tape.new(rows, cols, itemsize)
        tape.touch(made.nbytes)
        return [made]

    tape.record([loss], [out], backward, saves=[labels, out])
    return loss


_PRICES: Mapping[Any, PriceLoss] = MappingProxyType(
    {
        functional.cross_entropy: price_cross_entropy,
        nn.CrossEntropyLoss: price_cross_entropy,
        functional.binary_cross_entropy_with_logits: price_binary,
        nn.BCEWithLogitsLoss: price_binary,
    }
)
_DEAR = ("label_smoothing", "pos_weight")
_DEAR_OF_BINARY = ("weight", *_DEAR)
"""Options that make more tensors than are priced."""


def price_of(loss_fn: Callable[..., Any]) -> PriceLoss:
    """What a loss function holds, with labels of classes, or for the binary one labels in the model's dtype.

    Args:
        loss_fn: `cross_entropy` or `binary_cross_entropy_with_logits` of torch, or their modules; `ignore_index` and
            the class weights of `cross_entropy` may be set.

    Raises:
        ValueError: another one, or other options.
    """
    inner = loss_fn.func if isinstance(loss_fn, partial) else loss_fn
    price = _PRICES.get(type(inner) if isinstance(inner, nn.Module) else inner)
    if price is None:
        raise ValueError(
            f"loss_fn {getattr(inner, '__name__', inner)!r} is not priced; estimate with cross_entropy or "
            "binary_cross_entropy_with_logits, whichever has labels of the same shape"
        )
    options = loss_fn.keywords if isinstance(loss_fn, partial) else vars(inner)
    options = {**options, **getattr(inner, "_buffers", {})}
    dear = _DEAR if price is price_cross_entropy else _DEAR_OF_BINARY
    if used := [name for name in dear if _is_set(options.get(name))]:
        raise ValueError(f"loss_fn with {used[0]} is not priced; estimate without it, and leave room for its tensors")
    return price


def _is_set(option: Any) -> bool:
    return option is not None and not (isinstance(option, float) and option == 0)
