"""`RowSource`: where the values of a store's rows come from when it is built."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from workbench.features.sources import as_store
from workbench.outofcore.learnt_init import LearntInit

RowsOf = Callable[[int, Tensor], Tensor]
"""Values of a partition's nodes: [n, *row_shape], from the partition's number and the caller's ids."""


@dataclass(frozen=True)
class RowSource:
    """Where the values of rows come from."""

    row_shape: tuple[int, ...]
    dtype: torch.dtype
    learnt: bool
    values_of: RowsOf


def row_source(rows: Any, num_nodes: int) -> RowSource:
    """Return the source of rows that a caller passed: `LearntInit`, or features of every node.

    Raises:
        ValueError: another number of rows than nodes.
        TypeError: neither.
    """
    if isinstance(rows, LearntInit):
        return RowSource(rows.row_shape, rows.dtype, True, lambda partition, ids: rows.values(partition, len(ids)))
    store = as_store(rows, "rows")
    if (count := len(store)) != num_nodes:  # type: ignore[arg-type]
        raise ValueError(f"rows has {count} rows, but there are {num_nodes} nodes; pass one per node")
    return RowSource(tuple(store.row_shape), store.dtype, False, lambda _, ids: store.read(ids).cpu())
