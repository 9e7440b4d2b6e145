"""The record that `to_pyg` returns without PyG, and the errors for a form that a batch does not have."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

Adj = tuple[Tensor, Tensor | None, tuple[int, int]]
ABSENT = {
    "edge_index": (
        "this batch has no edge_index: its nodes have a sample of their own in every layer, which edge_index can't "
        'express; call the layers with adjs, or convert with to_pyg(form="edge_index"), which keeps one sample per node'
    ),
    "adjs": (
        'this batch has no adjs: to_pyg(form="edge_index") kept one sample per node for all layers; call the layers '
        "with edge_index, or convert with to_pyg()"
    ),
}
"""Errors by the attribute that a batch does not have."""


@dataclass(frozen=True, eq=False)
class PygBatch:
    """A batch in PyG's form; if PyG is installed, `blocks_to_pyg` returns a `Data` with the same attributes instead.

    It contains the edges in one or both of two forms, as positions in `n_id`, sources in row 0 and targets in row 1:

    - `adjs` has the edges of each layer: `(edge_index, e_id, (num_src, num_dst))`, input layer first, as PyG's
      `NeighborSampler` yields them, with `adj_weights` and `adj_types`.
    - `edge_index` has the form of PyG's `NeighborLoader`: hop by hop, the in-edges of the nodes that were new in the
      previous hop, so that every node has one sample for all layers, with `e_id`, `edge_weight` and `edge_type`.

    Reading a form that a batch does not have raises an AttributeError that names the other.

    Args:
        n_id: int64 [num_inputs], raw-graph ids, hop by hop.
        batch_size: number of seeds, which come first in `n_id`.
        edge_index: int64 [2, num_edges], or None.
        adjs: one entry per layer, or None.
        num_sampled_nodes: number of new nodes per hop, starting with the seeds.
        num_sampled_edges: number of edges per hop; None without `edge_index`.
        e_id: int64 [num_edges], raw-graph edge ids.
        edge_weight: floating point [num_edges].
        edge_type: integer [num_edges].
        adj_weights: floating point [num_edges of the layer], one entry per layer.
        adj_types: integer [num_edges of the layer], one entry per layer.
    """

    n_id: Tensor
    batch_size: int
    edge_index: Tensor | None
    adjs: list[Adj] | None
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int] | None = None
    e_id: Tensor | None = None
    edge_weight: Tensor | None = None
    edge_type: Tensor | None = None
    adj_weights: list[Tensor | None] | None = None
    adj_types: list[Tensor | None] | None = None

    def __post_init__(self) -> None:
        for name in ABSENT:
            if getattr(self, name) is None:
                object.__delattr__(self, name)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(ABSENT.get(name, f"PygBatch has no attribute {name!r}"))
