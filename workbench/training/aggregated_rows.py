"""`AggregatedRows`: features and their precomputed aggregates, read together."""

from typing import Any

import torch
from torch import Tensor

from workbench.core.traffic import Traffic
from workbench.features.protocols import check_store
from workbench.features.sources import as_store
from workbench.features.stage import stage_ids
from workbench.nn.inputs import Inputs


class AggregatedRows:
    """The features and the full-neighbour aggregates of nodes, for batches of `workbench.WithoutInputLayer`.

    Pass it in place of the features: `train_step(model, mb, rows, y, …)`, `wb.stage(rows, window)`,
    `full_neighbour_logits(model, graph, rows)`. A read takes two rows per id, one of each store, which both count.

    Args:
        x: features by raw-graph id: a tensor, an array or a store.
        aggregated: their aggregates, as `workbench.aggregate_rows` returns them.

    Raises:
        TypeError: rows can't be read from a source, or the two have different dtypes.
        ValueError: rows of different shapes, or different numbers of rows.

    Source: Hoang et al., "BatchGNN" (2023), section 3, "Input Feature Aggregation Cache".
    """

    def __init__(self, x: Any, aggregated: Any) -> None:
        self.x, self.aggregated = as_store(x, "x"), as_store(aggregated, "aggregated")
        for name, store in (("x", self.x), ("aggregated", self.aggregated)):
            check_store(name, store)
        ours, theirs = ((len(s), *s.row_shape) for s in (self.x, self.aggregated))
        if ours != theirs:
            raise ValueError(f"x has shape {ours}, but aggregated {theirs}; pass workbench.aggregate_rows(graph, x, …)")
        if self.x.dtype != self.aggregated.dtype:
            raise TypeError(f"x is {self.x.dtype}, but aggregated {self.aggregated.dtype}; convert one of them")

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row of either store."""
        return tuple(self.x.row_shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    @property
    def device(self) -> torch.device:
        return self.x.device

    def __len__(self) -> int:
        """Exclusive upper bound of the ids."""
        return len(self.x)

    def read(self, ids: Tensor) -> Inputs:
        """Read the features and aggregates of some nodes.

        Args:
            ids: int64 or int32 [n], raw-graph ids.

        Returns:
            `Inputs` with [n, in_dim] features and aggregates.
        """
        return Inputs(self.x.read(ids), self.aggregated.read(ids))

    def stage(self, ids: Tensor, *, traffic: Traffic | None = None) -> "AggregatedRows":
        """Fetch rows of both stores in bulk; collective if a store's `stage` is.

        Args:
            ids: int64 [n], ascending, each id once.
            traffic: counts the rows that are read from the result.
        """
        return AggregatedRows(*(stage_ids(store, ids, traffic=traffic) for store in (self.x, self.aggregated)))

    def __repr__(self) -> str:
        return f"AggregatedRows(x={self.x!r}, aggregated={self.aggregated!r})"
