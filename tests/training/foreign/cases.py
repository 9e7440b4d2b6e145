"""What a contract of another library's layers consists of: how a layer is built and called, and what is expected."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.minibatch import MiniBatch

WIDTH, EDGE_WIDTH, NUM_TYPES, NUM_NODES, NUM_EDGES = 8, 3, 3, 60, 400
X = torch.linspace(-9, 9, NUM_NODES * WIDTH, dtype=torch.float64).sin().view(NUM_NODES, WIDTH)
EDGE_ATTR = torch.linspace(-7, 7, NUM_EDGES * EDGE_WIDTH, dtype=torch.float64).cos().view(NUM_EDGES, EDGE_WIDTH)
NODE_TYPE = torch.arange(NUM_NODES) % 2


@dataclass(frozen=True)
class Case:
    """One way of using a class.

    Args:
        outcome: "exact"; "warned" (inexact, and `check_exact` names it); or the reason why it is not applicable.
        build: returns the layer, from [nodes, WIDTH] to [nodes, WIDTH]; None if not applicable.
        call: calls the layer with a `View` and rows; None for graph and rows, in the library's order.
        options: of the class, for the page of outcomes.
        merged: the layer only takes graphs whose sources are their destinations, so it is called with all edges.
        dtype: float32 for layers that compute in no other.
        named: class of the module inside the layer that is to blame; "" for the layer.
    """

    outcome: str
    build: Callable[[], nn.Module] | None = None
    call: Callable[..., Any] | None = None
    options: str = ""
    merged: bool = False
    dtype: torch.dtype = torch.float64
    named: str = ""

    @property
    def is_run(self) -> bool:
        return self.build is not None


@dataclass(frozen=True, eq=False)
class View:
    """What a layer is called with: a layer of a batch, or all layers merged (of a batch with one sample per node)."""

    mb: MiniBatch
    layer: int
    merged: bool
    library: str

    @property
    def block(self) -> Any:
        return self.mb.blocks[0 if self.merged else self.layer]

    @cached_property
    def edge_index(self) -> Tensor:
        batch = self.mb.to_pyg()
        return batch.edge_index if self.merged else batch.adjs[self.layer][0]

    @cached_property
    def graph(self) -> Any:
        if self.library == "pyg":
            return self.edge_index
        if not self.merged:
            return self.mb.to_dgl()[self.layer]
        import dgl

        return dgl.graph(tuple(self.edge_index), num_nodes=self.mb.num_inputs)

    @property
    def num_dst(self) -> int:
        return self.mb.num_inputs if self.merged else self.block.num_dst

    def pair(self, h: Tensor) -> tuple[Tensor, Tensor]:
        return h, h[: self.num_dst]

    @property
    def edge_attr(self) -> Tensor:
        return EDGE_ATTR.to(self.mb.device)[self.block.edge_ids % NUM_EDGES]

    @property
    def edge_type(self) -> Tensor:
        return self.block.edge_type

    @property
    def edge_weight(self) -> Tensor:
        return self.block.edge_weight

    @property
    def eigenvectors(self) -> Tensor:
        return X[self.mb.node_ids % NUM_NODES][:, :2]

    @property
    def node_type(self) -> Tensor:
        return NODE_TYPE[self.mb.node_ids % NUM_NODES]


class Network(nn.Module):
    """A projection and two layers of a case, with a non-linearity between them."""

    def __init__(self, case: Case, library: str) -> None:
        super().__init__()
        assert case.build is not None
        self.first = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(case.build() for _ in range(2))
        self._call = case.call or (_graph_last if library == "pyg" else _graph_first)

    def forward(self, views: list[View], h: Tensor) -> Tensor:
        h = self.first(h)
        for layer, view in zip(self.layers, views, strict=True):
            out = self._call(layer, view, h)
            h = (out[0] if isinstance(out, tuple) else out)[: view.num_dst].flatten(1).sin()
        return h


def _graph_first(layer: nn.Module, view: View, h: Tensor) -> Tensor:
    return layer(view.graph, h)


def _graph_last(layer: nn.Module, view: View, h: Tensor) -> Tensor:
    return layer(h, view.graph)


def forward_of(model: nn.Module, library: str, *, merged: bool) -> Callable[..., Tensor]:
    """A call of the model with a micro-batch and its inputs."""

    def forward(mb: MiniBatch, inputs: Any) -> Tensor:
        views = [View(mb, layer, merged, library) for layer in range(len(mb.blocks))]
        return model(views, inputs.x)[: mb.num_seeds]

    return forward
