"""Outputs of a model that are not one tensor: tuples, lists and dictionaries of tensors, nested in any way."""

from typing import Any

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
