"""Outputs of a model that a loss function receives: tensors, or tuples, lists and dictionaries of them."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only


def first_tensor(out: Any) -> Tensor | None:
    """Return the first tensor of an output; None if it contains none."""
    return next((leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)), None)


def select_rows(out: Any, rows: Tensor, num_rows: int) -> Any:
    """Select rows of every tensor of an output that has `num_rows` of them; others are kept as they are.

    Args:
        out: the output.
        rows: int64, positions of the rows.
        num_rows: number of rows of a tensor with one row per seed.
    """

    def select(tensor: Tensor) -> Tensor:
        if tensor.dim() == 0 or tensor.shape[0] != num_rows:
            return tensor
        return tensor.index_select(0, rows.to(tensor.device))

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
    """Check the output's structure and rows, and return the device of its first tensor.

    Raises:
        TypeError: it contains no tensor.
        ValueError: a tensor without a row per seed.
    """
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
