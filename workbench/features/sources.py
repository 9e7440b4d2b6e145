"""Sources of features and labels: tensors, arrays and stores, all read as stores."""

from typing import Any

import numpy as np
from torch import Tensor

from workbench.core.errors import check_type
from workbench.features.memory_rows import ArrayRows, MemoryRows
from workbench.features.protocols import FeatureStore


def as_store(source: Any, name: str = "x") -> FeatureStore:
    """Wrap a tensor or an array in a store; stores are returned unchanged.

    Args:
        source: a tensor [num_nodes, …], a NumPy array (a memory-mapped one too), or an object with `.read(ids)`.
        name: name of the argument, for messages.

    Raises:
        TypeError: rows can't be read from the source.
        ValueError: a tensor without dimensions, or an array of another byte order.
    """
    if not isinstance(source, type) and hasattr(source, "read"):
        return source
    remedy = "a tensor with a row per node of the graph (torch.as_tensor), an array, or an object with .read(ids)"
    check_type(name, source, Tensor | np.ndarray, f"pass {remedy}")
    rows: Any = source
    if not rows.ndim:
        raise ValueError(f"{name} is a single number; pass a row per node of the graph")
    return MemoryRows(rows) if isinstance(rows, Tensor) else ArrayRows(rows)


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
