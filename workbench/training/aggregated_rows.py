"""Features with the first layer's aggregate: precomputed (`AggregatedRows`), or computed on read."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import check_ids, check_type
from workbench.core.machine import Traffic
from workbench.core.minibatch import MiniBatch
from workbench.core.shared_storage import same_record
from workbench.features.memory_rows import as_store
from workbench.features.protocols import check_store
from workbench.features.stage import stage_ids
from workbench.kernels.csr import index_dtype
from workbench.kernels.gather import gather_rows
from workbench.memory.training_setup import TrainingSetup
from workbench.nn.gnn import GNN
from workbench.nn.losses import Inputs
from workbench.nn.signature import Forward, default_forward
from workbench.nn.static_aggregate import check_aggregates_on_read


class AggregatedRows:
    """The features and the full-neighbour aggregates of nodes, for batches of `workbench.macrobatch.WithoutInputLayer`.

    Pass it in place of the features: `train_step(model, mb, rows, y, …)`, `wb.stage(rows, window)`,
    `full_neighbour_logits(model, graph, rows)`. A read takes two rows per id, one of each store, which both count.

    Args:
        x: features by raw-graph id: a tensor, an array or a store.
        aggregated: their aggregates, as `workbench.macrobatch.aggregate_rows` returns them.

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
            raise ValueError(
                f"x has shape {ours}, but aggregated {theirs}; pass workbench.macrobatch.aggregate_rows(graph, x, …)"
            )
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


@dataclass(frozen=True, eq=False)
class AggregateOnRead:
    """Features of which a training step reads the first layer's aggregates instead of its sources' rows.

    A first layer that sums rows of features (sage-mean, gcn, gin) can read them where they are, by raw-graph id: the
    rows of its sources, most of a batch's memory, are never gathered: a step needs two rows per destination instead of
    one per source. It is the same up to rounding. A source that several micro-batches share costs only its edges in
    each. Pass it in place of the features: `train_step(model, micro, AggregateOnRead(x), y, …)`. For estimates and
    plans set `aggregate_on_read` of `workbench.TrainingSetup`.

    Args:
        x: float32 or float64 [num_nodes, in_dim] on the CPU, by raw-graph id, contiguous.

    Raises:
        TypeError: `x` is not a tensor of these dtypes.
        ValueError: it is not a contiguous matrix on the CPU, or requires a gradient.
    """

    x: Tensor

    def __post_init__(self) -> None:
        remedy = "pass the features [num_nodes, in_dim] as a tensor; gather rows of other stores"
        check_type("x", self.x, Tensor, remedy)
        if self.x.dtype not in (torch.float32, torch.float64):
            raise TypeError(f"x is {self.x.dtype}; pass float32 or float64, or the features themselves")
        plain = self.x.dim() == 2 and self.x.is_contiguous() and self.x.device.type == "cpu"
        if not plain or self.x.requires_grad:
            raise ValueError(
                f"x has shape {tuple(self.x.shape)} and strides {self.x.stride()} on {self.x.device}, requires_grad="
                f"{self.x.requires_grad}; rows are aggregated where they are only in a contiguous matrix on the CPU "
                "without a gradient: pass the features themselves, which are gathered"
            )

    def step_of(self, setup: TrainingSetup) -> tuple[Callable[[MiniBatch], Inputs], Forward]:
        """Return what `workbench.accumulate` needs as `read` and `forward`.

        Args:
            setup: its model is one of `workbench.build_model`, on the CPU, called by default (no `forward`).

        Raises:
            ValueError: the first layer's aggregate is not linear without parameters, the model is on another device, or
                the setup has a `forward`.
            TypeError: another type of model, or features of another dtype than its parameters.
        """
        model = setup.model
        if setup.forward is not None:
            raise ValueError("AggregateOnRead calls the model itself; omit forward, or pass the features x")
        check_aggregates_on_read(model)
        assert isinstance(model, GNN)
        model.check_features(self.x)
        call, aggregate = default_forward(model), model.layers[0].aggregate
        return partial(self._read, aggregate), OnAggregates(call)  # pyright: ignore[reportArgumentType]

    def _read(self, aggregate: Callable[[Block, Tensor], Tensor], mb: MiniBatch) -> Inputs:
        """Aggregate the sources' rows, and gather those of the destinations."""
        check_ids("node_ids", mb.node_ids, len(self.x))  # which the kernels trust
        block, grad_was_enabled = _by_raw_id(mb, len(self.x)), torch.is_grad_enabled()
        if grad_was_enabled and block.edge_weight is not None and block.edge_weight.requires_grad:
            raise ValueError(
                "the first block's edge_weight requires a gradient, which aggregates that are read have none of; pass "
                "the features themselves"
            )
        try:
            torch._C._set_grad_enabled(False)
            aggregated = aggregate(block, self.x)
        finally:  # in one C call; torch.no_grad exits in Python code, which an interrupt could precede
            torch._C._set_grad_enabled(grad_was_enabled)
        return Inputs(gather_rows(self.x, mb.node_ids[: mb.blocks[0].num_dst]), aggregated)


@dataclass(frozen=True, eq=False)
class OnAggregates:
    """The default call of a model on the aggregates that `AggregateOnRead` reads, in place of the first block."""

    call: Forward

    def __call__(self, mb: MiniBatch, inputs: Inputs) -> Any:
        ids = mb.node_ids[: mb.blocks[0].num_dst]
        return self.call(same_record(mb, node_ids=ids, blocks=mb.blocks[1:]), inputs)


def _by_raw_id(mb: MiniBatch, num_nodes: int) -> Block:
    """The first block with all nodes of the graph as sources; its destinations are not the first of them."""
    ids = mb.node_ids.to(index_dtype(num_nodes))
    return same_record(mb.blocks[0], indices=gather_rows(ids, mb.blocks[0].indices), num_src=num_nodes)


def sources_of(x: Any) -> Inputs:
    """Return the sources of features that a step may be passed, without their form."""
    if isinstance(x, AggregatedRows):
        return Inputs(x.x, x.aggregated)
    return Inputs.of(x.x if isinstance(x, AggregateOnRead) else x)
