"""The feature store protocol, and reads from tensors, arrays and stores alike."""

from typing import Any, Protocol

import torch
from torch import Tensor


class FeatureStore(Protocol):
    """Rows by raw-graph id. `read` is local: it may be called any number of times, on every rank independently."""

    def read(self, ids: Tensor) -> Tensor:
        """Read rows.

        Args:
            ids: int64 [n], raw-graph ids, not necessarily unique.

        Returns:
            [n, …], one row per id.
        """
        ...


def read_rows(source: Any, ids: Tensor) -> Tensor:
    """Gather rows by id, on the device of the source.

    Args:
        source: a tensor or numpy array with one row per node (memory-mapped ones included), or a `FeatureStore`.
        ids: int64 [n], raw-graph ids, on any device.

    Returns:
        [n, …].
    """
    if isinstance(source, Tensor):
        return source.index_select(0, ids.to(source.device))
    if hasattr(source, "read"):
        return source.read(ids)
    return torch.as_tensor(source[ids.cpu().numpy()])


def check_covers(name: str, source: Any, ids: Tensor) -> None:
    """Check that a source has a row for every id, if its length is known.

    Args:
        name: name of the source in messages.
        source: a tensor, an array or a `FeatureStore`.
        ids: int64 [n], raw-graph ids.

    Raises:
        TypeError: rows can't be read from the source.
        ValueError: a tensor without dimensions.
        IndexError: an id beyond the last row.
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
            f"{name} has {len(source)} rows, but the batch reads row {highest}; pass {name} by raw-graph id"
        )
