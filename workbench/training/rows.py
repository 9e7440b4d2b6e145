"""Rows of features and labels by raw-graph id, wherever they lie."""

from typing import Any

import torch
from torch import Tensor


def read_rows(source: Any, ids: Tensor) -> Tensor:
    """Rows of a tensor, an array or a store, on the device where they lie.

    Args:
        source: a tensor, anything with `.read(ids)`, or anything that takes an array of ids in brackets.
        ids: int64 [n], on any device.

    Returns:
        [n, …].
    """
    if isinstance(source, Tensor):
        return source.index_select(0, ids.to(source.device))
    if hasattr(source, "read"):
        return source.read(ids)
    return torch.as_tensor(source[ids.cpu().numpy()])


def check_covers(name: str, source: Any, ids: Tensor) -> None:
    """Check that a source has rows for all ids, as far as its length is known.

    Raises:
        TypeError: nothing that rows can be read from.
        IndexError: with the id that is too large.
    """
    has_rows = hasattr(source, "read") or hasattr(source, "__getitem__")
    if not has_rows or isinstance(source, list | tuple | str | bytes | dict | type):
        raise TypeError(
            f"{name} is a {type(source).__name__}; pass a tensor with a row per node of the graph (torch.as_tensor), "
            "an array, or an object with .read(ids)"
        )
    if isinstance(source, Tensor) and source.dim() == 0:
        raise ValueError(f"{name} is a single number; pass a row per node of the graph")
    if not ids.numel() or not hasattr(source, "__len__"):
        return
    highest = int(ids.max())
    if highest >= len(source):
        raise IndexError(
            f"{name} has {len(source)} rows; the batch asks for row {highest}: pass {name} by raw-graph id"
        )
