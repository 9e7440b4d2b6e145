"""Conversions to and from PyTorch Geometric (PyG): batches and graphs in `edge_index` form."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import INT64_MAX, check_at_least, check_ids, check_type
from workbench.core.graph import Graph
from workbench.interop.edge_lists import (
    block_from_edges,
    check_edge_ids,
    check_edge_index,
    in_callers_order,
)
from workbench.interop.pyg_hops import blocks_of_hops, why_without_hops

Adj = tuple[Tensor, Tensor | None, tuple[int, int]]


@dataclass(frozen=True, eq=False)
class PygBatch:
    """A batch in PyG's form; if PyG is installed, `blocks_to_pyg` returns a `Data` with the same attributes instead.

    It contains the edges twice, both times as positions in `n_id`, with sources in row 0 and targets in row 1:

    - `adjs` is exact: `(edge_index, e_id, (num_src, num_dst))` per layer, input layer first, as PyG's `NeighborSampler`
      yields them, with `adj_weights` and `adj_types`.
    - `edge_index` has the form of PyG's `NeighborLoader`: hop by hop, the in-edges of the nodes that were new in the
      previous hop, so that every node has one sample for all layers. It describes the same batch if that is true of the
      blocks (full neighbourhoods, DENSE samples); otherwise it contains each node's outermost sample.

    Args:
        n_id: int64 [num_inputs], raw-graph ids, hop by hop.
        batch_size: number of seeds, which come first in `n_id`.
        edge_index: int64 [2, num_edges].
        num_sampled_nodes: number of new nodes per hop, starting with the seeds.
        num_sampled_edges: number of edges per hop.
        adjs: one entry per layer.
        e_id: int64 [num_edges], raw-graph edge ids.
        edge_weight: floating point [num_edges].
        edge_type: integer [num_edges].
        adj_weights: floating point [num_edges of the layer], one entry per layer.
        adj_types: integer [num_edges of the layer], one entry per layer.
    """

    n_id: Tensor
    batch_size: int
    edge_index: Tensor
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]
    adjs: list[Adj]
    e_id: Tensor | None = None
    edge_weight: Tensor | None = None
    edge_type: Tensor | None = None
    adj_weights: list[Tensor | None] | None = None
    adj_types: list[Tensor | None] | None = None


def _edge_index(block: Block) -> Tensor:
    return torch.stack([block.indices.to(torch.int64), block.destinations.to(torch.int64)])


def _per_hop(blocks: Sequence[Block], name: str, starts: Sequence[int]) -> Tensor | None:
    """Concatenate an edge attribute hop by hop, starting at the seeds; None if a block does not have it."""
    values = [getattr(block, name) for block in reversed(blocks)]
    if any(value is None for value in values):
        return None
    return torch.cat([value[start:] for value, start in zip(values, starts, strict=True)])


def blocks_to_pyg(node_ids: Tensor, blocks: Sequence[Block]) -> Any:
    """Convert blocks to a batch in PyG's form: exact in `adjs`, and like `NeighborLoader`'s in `edge_index`.

    Args:
        node_ids: int64 [num_inputs], raw-graph ids.
        blocks: input layer first, at least one.

    Returns:
        A `torch_geometric.data.Data` with the attributes of `PygBatch`, or a `PygBatch` if PyG is not installed.

    Raises:
        ValueError: if there are no blocks.
    """
    if not blocks:
        raise ValueError("the batch has no blocks; sample at least one layer")
    outermost_first = blocks[::-1]
    first_new_rows = [0, *(block.num_dst for block in outermost_first[:-1])]
    starts = [int(block.indptr[row]) for block, row in zip(outermost_first, first_new_rows, strict=True)]
    edges = [_edge_index(block) for block in blocks]
    batch = PygBatch(
        n_id=node_ids,
        batch_size=blocks[-1].num_dst,
        edge_index=torch.cat([e[:, start:] for e, start in zip(edges[::-1], starts, strict=True)], dim=1),
        num_sampled_nodes=[blocks[-1].num_dst, *(block.num_src - block.num_dst for block in outermost_first)],
        num_sampled_edges=[block.num_edges - start for block, start in zip(outermost_first, starts, strict=True)],
        adjs=[(e, b.edge_ids, (b.num_src, b.num_dst)) for e, b in zip(edges, blocks, strict=True)],
        e_id=_per_hop(blocks, "edge_ids", starts),
        edge_weight=_per_hop(blocks, "edge_weight", starts),
        edge_type=_per_hop(blocks, "edge_type", starts),
        adj_weights=[block.edge_weight for block in blocks],
        adj_types=[block.edge_type for block in blocks],
    )
    try:
        from torch_geometric.data import Data
    except ImportError:
        return batch
    return Data(**vars(batch), num_nodes=len(node_ids))


def _is_row(value: Any, length: int) -> bool:
    return isinstance(value, tuple | list) and len(value) == length


def _from_layers(batch: Any) -> list[Block]:
    for name in ("adjs", "adj_weights", "adj_types"):
        value = getattr(batch, name, None)
        check_type(name, value, (list, tuple, NoneType), "pass a list with one entry per layer, as to_pyg does")
    for layer, adj in enumerate(batch.adjs):
        if not (_is_row(adj, 3) and _is_row(adj[2], 2)):
            raise ValueError(f"adjs[{layer}] is {adj!r:.99}; pass (edge_index, e_id, (num_src, num_dst)) per layer")
        for count in adj[2]:
            check_at_least(f"a size of adjs[{layer}]", count, 0, most=len(batch.n_id))
    none = [None] * len(batch.adjs)
    weights, types = getattr(batch, "adj_weights", None) or none, getattr(batch, "adj_types", None) or none
    if not len(batch.adjs) == len(weights) == len(types):
        raise ValueError(
            f"the batch has {len(batch.adjs)} adjs, {len(weights)} adj_weights and {len(types)} adj_types; pass one of "
            "each per layer"
        )
    blocks = []
    for (edges, e_id, (num_src, num_dst)), weight, edge_type in zip(batch.adjs, weights, types, strict=True):
        attributes = {"edge_ids": e_id, "edge_weight": weight, "edge_type": edge_type}
        src, dst = check_edge_index(edges)
        blocks.append(block_from_edges(src, dst, num_src, num_dst, attributes))
    return blocks


def blocks_from_pyg(batch: Any) -> tuple[Tensor, tuple[Block, ...]]:
    """Convert a batch of PyG to node ids and blocks: the exact inverse of `blocks_to_pyg`.

    Args:
        batch: result of `blocks_to_pyg`, or a batch of PyG's `NeighborLoader`: an object with `n_id` and either `adjs`
            or `edge_index` and `num_sampled_nodes`. Blocks of a `NeighborLoader` are views of one CSR, as in a DENSE
            sample.

    Returns:
        Raw-graph node ids, int64 [num_inputs], and the blocks.

    Raises:
        TypeError: if ids or edges are not integer tensors.
        ValueError: if an attribute is missing, or attributes do not match.
        IndexError: if an edge does not connect positions in `n_id`.
    """
    if getattr(batch, "n_id", None) is None:
        raise ValueError("the batch has no n_id; pass a batch of PyG's NeighborLoader, or the result of to_pyg")
    node_ids = check_ids("n_id", batch.n_id, INT64_MAX)
    if getattr(batch, "adjs", None) is not None:
        blocks = _from_layers(batch)
    elif getattr(batch, "num_sampled_nodes", None) is not None:
        blocks = blocks_of_hops(batch)
    else:
        raise ValueError(f"the batch has neither adjs nor num_sampled_nodes; {why_without_hops(batch)}")
    return node_ids, tuple(blocks)


def is_disjoint(batch: Any) -> bool:
    """Return whether a batch of PyG is disjoint: it contains one copy of a node per seed that reaches it."""
    return getattr(batch, "batch", None) is not None


def graph_to_pyg(graph: Graph) -> dict[str, Any]:
    """Convert a graph to the arguments of PyG's `Data` (`Data(**graph_to_pyg(graph))`), with edges ordered by edge id.

    Args:
        graph: a graph whose edge ids, if it has any, are 0 to num_edges − 1.

    Raises:
        ValueError: if the edge ids have gaps.
    """
    check_edge_ids(graph)
    nodes = torch.arange(graph.num_nodes, device=graph.device)
    destinations = torch.repeat_interleave(nodes, graph.in_degrees(), output_size=graph.num_edges)
    fields = {
        "num_nodes": graph.num_nodes,
        "edge_index": in_callers_order(graph, torch.stack([graph.indices.to(torch.int64), destinations])),
        "edge_weight": in_callers_order(graph, graph.edge_weight),
        "edge_type": in_callers_order(graph, graph.edge_type),
        "node_type": graph.node_type,
    }
    return {name: value for name, value in fields.items() if value is not None}


def graph_to_data(graph: Graph) -> Any:
    """Convert a graph to a PyG `Data`, or without PyG to an object with the same attributes.

    Args:
        graph: a graph whose edge ids, if it has any, are 0 to num_edges − 1.
    """
    fields = graph_to_pyg(graph)
    try:
        from torch_geometric.data import Data
    except ImportError:
        return SimpleNamespace(**fields)
    return Data(**fields)


def graph_from_pyg(data: Any) -> Graph:
    """Convert a homogeneous PyG `Data`.

    Args:
        data: object with `edge_index` and optionally `num_nodes`, `edge_weight`, `edge_type` and `node_type`.

    Raises:
        TypeError: if `edge_index` is not an integer tensor.
        ValueError: if `edge_index` is missing or does not have two rows.
        IndexError: if an id is out of range.
    """
    if getattr(data, "edge_index", None) is None:
        transposed = " before ToSparseTensor, which replaces it by adj_t" * (getattr(data, "adj_t", None) is not None)
        raise ValueError(
            f"the {type(data).__name__} has no edge_index; pass a PyG Data of one node and edge type{transposed}"
        )
    src, dst = check_edge_index(data.edge_index)
    return Graph.from_edges(
        src,
        dst,
        num_nodes=getattr(data, "num_nodes", None),
        edge_weight=getattr(data, "edge_weight", None),
        edge_type=getattr(data, "edge_type", None),
        node_type=getattr(data, "node_type", None),
    )
