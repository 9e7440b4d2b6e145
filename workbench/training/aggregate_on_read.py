"""`AggregateOnRead`: the first layer's aggregate computed from the features, without gathering its sources."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import check_ids, check_type
from workbench.core.minibatch import MiniBatch
from workbench.core.shared_storage import same_record
from workbench.kernels.csr import index_dtype
from workbench.kernels.gather import gather_rows
from workbench.memory.training_setup import TrainingSetup
from workbench.nn.first_aggregate import check_aggregates_on_read
from workbench.nn.gnn import GNN
from workbench.nn.inputs import Inputs
from workbench.nn.signature import Forward, default_forward
from workbench.training.aggregated_rows import AggregatedRows


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
        check_type(
            "x", self.x, Tensor, "pass the features [num_nodes, in_dim] as a tensor; gather rows of other stores"
        )
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
        return partial(self._read, aggregate), lambda mb, inputs: call(_without_first_block(mb), inputs)  # pyright: ignore[reportArgumentType]

    def _read(self, aggregate: Callable[[Block, Tensor], Tensor], mb: MiniBatch) -> Inputs:
        """Aggregate the sources' rows, and gather those of the destinations."""
        check_ids("node_ids", mb.node_ids, len(self.x))  # which the kernels trust
        block, grad_was_enabled = _by_raw_id(mb, len(self.x)), torch.is_grad_enabled()
        try:
            torch._C._set_grad_enabled(False)
            aggregated = aggregate(block, self.x)
        finally:  # in one C call; torch.no_grad exits in Python code, which an interrupt could precede
            torch._C._set_grad_enabled(grad_was_enabled)
        return Inputs(gather_rows(self.x, mb.node_ids[: mb.blocks[0].num_dst]), aggregated)


def _by_raw_id(mb: MiniBatch, num_nodes: int) -> Block:
    """The first block with all nodes of the graph as sources; its destinations are not the first of them."""
    ids = mb.node_ids.to(index_dtype(num_nodes))
    return same_record(mb.blocks[0], indices=gather_rows(ids, mb.blocks[0].indices), num_src=num_nodes)


def _without_first_block(mb: MiniBatch) -> MiniBatch:
    return same_record(mb, node_ids=mb.node_ids[: mb.blocks[0].num_dst], blocks=mb.blocks[1:])


def sources_of(x: Any) -> Inputs:
    """Return the sources of features that a step may be passed, without their form."""
    if isinstance(x, AggregatedRows):
        return Inputs(x.x, x.aggregated)
    return Inputs.of(x.x if isinstance(x, AggregateOnRead) else x)
