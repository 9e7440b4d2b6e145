"""Sources of features and labels: tensors, arrays and stores, all read as stores."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_type
from workbench.features.memory_rows import MemoryRows
from workbench.features.protocols import FeatureStore
from workbench.features.tensor_rows import TensorRows


def as_store(source: Any, name: str = "x") -> FeatureStore:
    """Wrap a tensor or an array in a store; stores are returned unchanged.

    Args:
        source: a tensor [num_nodes, …], a NumPy array (a memory-mapped one too), or an object with `.read(ids)`.
        name: name of the argument, for messages.

    Raises:
        TypeError: rows can't be read from the source.
        ValueError: a tensor without dimensions.
    """
    if not isinstance(source, type) and hasattr(source, "read"):
        return source
    remedy = "a tensor with a row per node of the graph (torch.as_tensor), an array, or an object with .read(ids)"
    check_type(name, source, Tensor | np.ndarray, f"pass {remedy}")
    rows: Any = source
    if not rows.ndim:
        raise ValueError(f"{name} is a single number; pass a row per node of the graph")
    return MemoryRows(rows) if isinstance(rows, Tensor) else TensorRows(_shared(name, rows))


class _Shared:
    """Exports the memory of an array that may be read-only, of which torch can only make writable tensors."""

    def __init__(self, array: np.ndarray) -> None:
        address, _ = array.__array_interface__["data"]
        self.array = array  # kept alive
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def _shared(name: str, array: np.ndarray) -> Tensor:
    if any(stride < 0 for stride in array.strides):
        raise ValueError(f"{name} is an array in reverse order, which torch can't share; pass {name}.copy()")
    return torch.from_numpy(np.asarray(_Shared(array)))


def read_rows(source: Any, ids: Tensor) -> Tensor:
    """Gather rows by id, on the device of the source.

    Args:
        source: anything that `as_store` accepts.
        ids: int64 or int32 [n], raw-graph ids, on any device.

    Returns:
        [n, …].
    """
    return as_store(source).read(ids)


def check_covers(name: str, source: Any, ids: Tensor) -> None:
    """Check that a source has a row for every id, if its length is known.

    Args:
        name: name of the source in messages.
        source: anything that `as_store` accepts.
        ids: int64 [n], raw-graph ids.

    Raises:
        TypeError: rows can't be read from the source.
        ValueError: a tensor without dimensions.
        IndexError: an id beyond the last row.
    """
    store = as_store(source, name)
    if not ids.numel() or not hasattr(store, "__len__"):
        return
    highest = int(ids.max())
    if highest >= len(store):
        raise IndexError(
            f"{name} has {len(store)} rows, but the batch reads row {highest}; pass {name} by raw-graph id"
        )
