"""A loss function, torch's or the user's, as a sum over seeds and the divisor of its mean, so that it can be split."""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from workbench.core.errors import find_out_of_range
from workbench.error_text import text_of
from workbench.kernels.buffers import to_device

LossFunction = Callable[..., Tensor]

UNLABELLED = -1

_OOM_MESSAGES = ("out of memory", "enough memory", "allocate memory", "ALLOC_FAILED")


@dataclass(frozen=True)
class SeedLoss:
    """Sum of the labelled seeds' losses; if a seed has several losses, sum of the seeds' mean losses.

    Args:
        unreduced: maps outputs and labels to the losses of every seed, [n] or [n, …].
        ignore_index: a label that means unlabelled, besides -1.
        class_weight: floating [classes], weight of a seed of each class in the mean; None: 1 each.
        mean: divide a seed's losses by their number.
        by_class: integer label vectors are classes, columns of the output.
    """

    unreduced: LossFunction
    ignore_index: int
    class_weight: Tensor | None
    mean: bool
    by_class: bool = False

    @staticmethod
    def of(loss_fn: LossFunction, reduction: str) -> "SeedLoss":
        """Derive a `SeedLoss` from the signature or attributes of a loss function.

        Raises:
            TypeError: not callable, or a class instead of an instance.
            ValueError: a module, or a function with a bound `reduction`, that reduces differently.
        """
        check_loss(loss_fn)
        configured = _option(loss_fn, "reduction")
        bound = isinstance(loss_fn, nn.Module) or "reduction" in getattr(loss_fn, "keywords", {})
        if bound and configured not in (None, "none", reduction):
            raise ValueError(
                f"loss_fn reduces by {configured!r}, the step by {reduction!r}; pass the same reduction= to both"
            )
        ignore_index = _option(loss_fn, "ignore_index")
        by_class = ignore_index is not None  # otherwise `weight` is a factor that the mean does not divide by
        return SeedLoss(
            unreduced=_unreduced(loss_fn),
            ignore_index=ignore_index if by_class else UNLABELLED,
            class_weight=_option(loss_fn, "weight") if by_class else None,
            mean=reduction == "mean",
            by_class=by_class,
        )

    def weigh(self, labels: Tensor) -> float:
        """Compute what these seeds add to the divisor of the batch's mean: their number or class weights.

        Raises:
            ValueError: the class weights sum to zero or infinity.
            IndexError: a class without a weight.
        """
        labelled = self.labelled(labels)
        count = labels.shape[0] if labelled is None else int(labelled.sum())
        if self.class_weight is None or labelled is None or not count:
            return count
        weight, classes = self.class_weight.to(labels.device, torch.float64), labels[labelled].long()
        check_classes(classes, len(weight), "loss_fn has {} class weights")
        total = float(weight[classes].sum())
        if not 0 < total < float("inf"):
            raise ValueError(
                f"the class weights of the batch's {count} labelled seeds sum to {total}, by which their mean would be "
                "divided; give every class that occurs a positive weight"
            )
        return total

    def labelled(self, labels: Tensor) -> Tensor | None:
        """Return which seeds have a label, bool [n]; None: all have one.

        Raises:
            ValueError: class weights, by which a mean is divided, and seeds with several classes.
        """
        if labels.dim() != 1 and self.class_weight is not None and not labels.dtype.is_floating_point:
            raise ValueError(
                f"loss_fn has class weights, but y has integers of shape {list(labels.shape[1:])} per seed; pass one "
                'per seed, or weigh the losses in a function of your own with reduction="none"'
            )
        if labels.dim() != 1 or labels.dtype.is_floating_point:
            return None
        labels = labels.long()
        return (labels != UNLABELLED) & (labels != self.ignore_index)

    def __call__(self, out: Any, labels: Tensor, copy: Tensor | None = None) -> Tensor:
        """Compute the sum of the labelled seeds' losses, in float32 or wider.

        Args:
            out: the model's output: floating [n, …], or a tuple, list or dictionary of tensors, which the loss function
                receives whole, each tensor of n rows with those of the labelled seeds.
            labels: [n, …], on any device.
            copy: the labels on the device of the output, if they are there already.

        Raises:
            TypeError: the output contains no tensor.
            ValueError: the number of rows or losses differs from the number of seeds, the loss function failed, or it
                is a cross entropy of one column and floating labels, which is always 0, or of a mean over several
                classes per seed of which it ignores some.
            IndexError: a class for which the output has no column.
        """
        device = check_output(out, labels)
        labelled = self.labelled(labels)
        several = labelled is None and not labels.is_floating_point()
        if several and self.by_class and self.mean and bool((labels == self.ignore_index).any()):
            raise ValueError(
                f"y contains {self.ignore_index}, which loss_fn ignores, in integers of shape {list(labels.shape[1:])} "
                'per seed, whose mean would count it; pass reduction="sum", or average each seed\'s labels in a '
                'function of your own with reduction="none"'
            )
        if labelled is not None and not labelled.all():
            rows = labelled.nonzero()[:, 0]
            out, labels, copy = select_rows(out, rows, len(labels)), labels.index_select(0, rows), None
        if self.by_class and labelled is not None and isinstance(out, Tensor) and out.dim() > 1:
            check_classes(labels, out.shape[1], "the model's output has {} columns")
        if self.by_class and labels.is_floating_point() and isinstance(out, Tensor) and out.shape[1:] == (1,):
            raise ValueError(
                "the cross entropy of one column is 0 whatever the model computes; pass classes, y[:, 0].long(), and a "
                "model with a column per class, or loss_fn=torch.nn.functional.binary_cross_entropy_with_logits"
            )
        given = labels if copy is None or copy.device != device else copy
        losses = self._losses(out, to_device(given if labelled is None else given.long(), device))
        if losses.dim() == 0 or losses.shape[0] != len(labels):
            raise ValueError(
                f"loss_fn returned shape {tuple(losses.shape)} for {len(labels)} seeds, from which the mean over all "
                "micro-batches can't be computed; pass a function that accepts reduction= (as "
                "torch.nn.functional.cross_entropy does), or let yours return one loss per seed, for example: "
                'return torch.nn.functional.cross_entropy(output, labels, reduction="none")'
            )
        total = losses.sum(dtype=torch.promote_types(losses.dtype, torch.float32))
        return total / losses.shape[1:].numel() if self.mean else total

    def _losses(self, out: Any, labels: Tensor) -> Tensor:
        """Compute the losses; an error of the loss function is raised with the shapes and dtypes it received."""
        try:
            losses = self.unreduced(out, labels)
        except (TypeError, ValueError, IndexError, KeyError, AttributeError, RuntimeError) as error:
            if isinstance(out, Tensor) and isinstance(error, KeyError | AttributeError):  # of the user's own code
                raise
            if isinstance(error, torch.OutOfMemoryError) or any(word in text_of(error) for word in _OOM_MESSAGES):
                raise
            raise ValueError(
                f"loss_fn failed for an output of {describe(out)} and labels of {describe(labels)}: {text_of(error)}. "
                f"{remedy(out, labels)}"
            ) from error
        if not isinstance(losses, Tensor):
            instead = "return one loss per seed, a tensor (of several losses, their sum)"
            raise TypeError(f"loss_fn returned a {type(losses).__name__}; {instead}")
        if isinstance(out, Tensor) and losses.shape == (len(out), len(out)) != out.shape and len(out) > 1:
            raise ValueError(
                f"loss_fn broadcast an output of {describe(out)} and labels of {describe(labels)} to "
                f"{tuple(losses.shape)}; pass both of one shape, such as y[:, None] or an output[:, 0]"
            )
        return losses


def check_loss(loss_fn: Any) -> None:
    """Check that a loss function can be called.

    Raises:
        TypeError: It can't, or it is a class instead of an instance.
    """
    if inspect.isclass(loss_fn):
        raise TypeError(f"loss_fn is the class {loss_fn.__name__}; pass an instance of it: {loss_fn.__name__}()")
    if not callable(loss_fn):
        shown = f"a {type(loss_fn).__name__}" if isinstance(loss_fn, Tensor) else repr(loss_fn)
        raise TypeError(f"loss_fn is {shown}; pass a function such as torch.nn.functional.cross_entropy")


def check_classes(labels: Tensor, columns: int, limit: str) -> None:
    """Refuse a class without a column or weight, which would corrupt the CUDA context on a GPU.

    `limit` is the part of the message that says where the limit comes from, with `{}` for the number.
    """
    if (bad := find_out_of_range(labels, 0, columns)) is not None:
        raise IndexError(
            f"y contains class {bad}, but {limit.format(columns)}; classes must be in [0, {columns}), or -1 for "
            "unlabelled: number them from 0, or build the model with out_dim = largest class + 1"
        )


def _parameters(loss_fn: LossFunction) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(loss_fn).parameters
    except (TypeError, ValueError):  # a builtin
        return {}


def _option(loss_fn: LossFunction, name: str) -> Any:
    """Return an option as set in a module, or bound or defaulted in a function; None if there is none."""
    if isinstance(loss_fn, nn.Module):
        return getattr(loss_fn, name, None)
    parameter = _parameters(loss_fn).get(name)
    return None if parameter is None or parameter.default is parameter.empty else parameter.default


def _unreduced(loss_fn: LossFunction) -> LossFunction:
    loss_fn = getattr(loss_fn, "_orig_mod", loss_fn)  # a copy of a compiled module would share the caller's
    if isinstance(loss_fn, nn.Module) and hasattr(loss_fn, "reduction"):
        loss_fn = copy.copy(loss_fn)
        loss_fn.reduction = "none"  # pyright: ignore[reportArgumentType]
    elif not isinstance(loss_fn, nn.Module) and "reduction" in _parameters(loss_fn):
        return partial(loss_fn, reduction="none")
    return loss_fn


def first_tensor(out: Any) -> Tensor | None:
    """Return the first tensor of an output; None if it contains none."""
    return next((leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)), None)


def select_rows(out: Any, rows: Tensor, num_rows: int) -> Any:
    """Select rows of every tensor of an output that has `num_rows` of them; others are kept as they are.

    Args:
        rows: int64, positions of the rows.
    """

    def select(tensor: Tensor) -> Tensor:
        if tensor.dim() == 0 or tensor.shape[0] != num_rows:
            return tensor
        return tensor.index_select(0, to_device(rows, tensor.device))

    return tree_map_only(Tensor, select, out)


def describe(out: Any) -> str:
    """Describe an output for messages: its structure, dtypes and shapes."""
    if isinstance(out, Tensor):
        return f"{out.dtype} {tuple(out.shape)}"
    name = type(out).__name__
    if isinstance(out, dict):
        return f"{name}({', '.join(f'{key}: {describe(value)}' for key, value in out.items())})"
    if isinstance(out, tuple | list):
        return f"{name}({', '.join(map(describe, out))})"
    return name


def check_output(out: Any, labels: Tensor) -> torch.device:
    """Check the output's structure and rows, and return the device of its first tensor."""
    first = first_tensor(out)
    if first is None:
        raise TypeError(
            f"the model returned {describe(out)}; return one tensor with a row per seed, or a tuple, list or dict of "
            "tensors, or call workbench.accumulate(model, micro, read, loss_of), whose loss_of(output, mb) accepts any "
            "output"
        )
    if isinstance(out, Tensor) and (out.dim() == 0 or out.shape[0] != labels.shape[0]):
        raise ValueError(
            f"the model returned shape {tuple(out.shape)} for {labels.shape[0]} seeds; return one row per "
            "destination of the last block"
        )
    return first.device


def remedy(out: Any, labels: Tensor) -> str:
    """Say what to pass instead, for an output and labels that a loss function failed on."""
    if not isinstance(out, Tensor):
        return (
            "Pass a loss that accepts the whole output and returns one loss per seed, loss_fn=lambda out, y: "
            'torch.nn.functional.cross_entropy(out[0], y, reduction="none") + …, or select one tensor: '
            "forward=lambda mb, inputs: model(mb.blocks, inputs.x)[0]"
        )
    if labels.is_floating_point() and bool(labels.isnan().any()) and (out.dim() == 1 or out.shape[1] != 1):
        column = "[:, 0]" * (labels.dim() == 2)
        return f"Labels are NaN; where that means unlabelled, pass torch.where(y.isnan(), -1, y).long(){column}"
    if labels.shape[1:] == (1,) and (out.dim() == 1 or out.shape[1] != 1):
        return "Pass labels without the second dimension: y[:, 0]"
    if labels.is_floating_point() and labels.dim() == 1 and out.dim() == 2:
        return "Pass classes as integers, y.long(), or (for values) an output and labels of one shape"
    return "Pass labels of the shape and dtype that the loss expects for this output"


@dataclass(frozen=True, eq=False)
class Inputs:
    """The rows that a model reads for a micro-batch.

    Args:
        x: floating [num_inputs, …], features of the input nodes, in the order of `node_ids`; a value that is not a
            tensor is passed to the model as it is.
        aggregated: floating [num_inputs, in_dim], the precomputed aggregate of the first layer, for which the batch
            then has no block; None if the first layer aggregates.
    """

    x: Any
    aggregated: Any = None

    @staticmethod
    def of(rows: Any) -> "Inputs":
        """Return the rows as `Inputs`: as they are if they are, else as features."""
        return rows if isinstance(rows, Inputs) else Inputs(rows)

    def to(self, device: torch.device | None) -> "Inputs":
        """Copy the tensors to a device; None leaves them where they are."""
        return self if device is None else Inputs(_moved(self.x, device), _moved(self.aggregated, device))


def _moved(rows: Any, device: torch.device) -> Any:
    return to_device(rows, device, non_blocking=True) if isinstance(rows, Tensor) else rows
