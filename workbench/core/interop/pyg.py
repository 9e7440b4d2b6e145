"""Exchange with PyTorch Geometric: batches and graphs in its `edge_index` form."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import INT64_MAX, check_at_least, check_ids, check_type
from workbench.core.graph import Graph
from workbench.core.interop.edges import (
    block_from_edges,
    check_edge_ids,
    check_edge_index,
    in_callers_order,
    refuse_halo,
)
from workbench.core.interop.pyg_hops import blocks_of_hops
from workbench.core.minibatch import MiniBatch

Adj = tuple[Tensor, Tensor | None, tuple[int, int]]


@dataclass(frozen=True, eq=False)
class PygBatch:
    """What `to_pyg` returns where PyTorch Geometric is not installed; else a `Data` with the same attributes.

    Two forms stand beside each other, both in positions in `n_id`, row 0 the sources and row 1 the targets:

    - `adjs` is the exact one, `(edge_index, e_id, (num_src, num_dst))` per layer, input layer first, as PyG's
      `NeighborSampler` yields them; `adj_weights` and `adj_types` go along.
    - `edge_index` is that of PyG's `NeighborLoader`: hop after hop, the in-edges of the nodes first met one hop before.
      There every node has one sample for all layers. It is the same batch where that holds here too (full
      neighbourhoods, DENSE samples); of a batch sampled layer by layer it keeps each node's outermost sample.

    Args:
        n_id: int64 [num_inputs], raw-graph ids, hop after hop.
        batch_size: seeds, the first of `n_id`.
        edge_index: int64 [2, num_edges].
        num_sampled_nodes: new nodes per hop, the seeds first.
        num_sampled_edges: edges per hop.
        adjs: the layers.
        e_id: int64 [num_edges], raw-graph edge ids.
        edge_weight: floating [num_edges].
        edge_type: integer [num_edges].
        adj_weights: one a layer.
        adj_types: one a layer.
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


def _per_hop(mb: MiniBatch, name: str, starts: Sequence[int]) -> Tensor | None:
    """An attribute of the edges of each hop, outermost first."""
    values = [getattr(block, name) for block in reversed(mb.blocks)]
    if any(value is None for value in values):
        return None
    return torch.cat([value[at:] for value, at in zip(values, starts, strict=True)])


def to_pyg(mb: MiniBatch) -> Any:
    """The batch in PyG's form, exact in `adjs` and as `NeighborLoader` gives it in `edge_index`; see `PygBatch`.

    Args:
        mb: any batch without halo and with at least one block; its `parent` and `step` are not carried.

    Returns:
        `torch_geometric.data.Data`, or `PygBatch` where PyTorch Geometric is not installed.

    Raises:
        ValueError: a cooperative batch, or no blocks.
    """
    refuse_halo(mb)
    if not mb.blocks:
        raise ValueError("the batch has no blocks; sample at least one layer")
    outermost_first = mb.blocks[::-1]
    met = [0, *(block.num_dst for block in outermost_first[:-1])]
    starts = [int(block.indptr[rows]) for block, rows in zip(outermost_first, met, strict=True)]
    edges = [_edge_index(block) for block in mb.blocks]
    batch = PygBatch(
        n_id=mb.node_ids,
        batch_size=mb.num_seeds,
        edge_index=torch.cat([e[:, at:] for e, at in zip(edges[::-1], starts, strict=True)], dim=1),
        num_sampled_nodes=[mb.num_seeds, *(block.num_src - block.num_dst for block in outermost_first)],
        num_sampled_edges=[block.num_edges - at for block, at in zip(outermost_first, starts, strict=True)],
        adjs=[(e, b.edge_ids, (b.num_src, b.num_dst)) for e, b in zip(edges, mb.blocks, strict=True)],
        e_id=_per_hop(mb, "edge_ids", starts),
        edge_weight=_per_hop(mb, "edge_weight", starts),
        edge_type=_per_hop(mb, "edge_type", starts),
        adj_weights=[block.edge_weight for block in mb.blocks],
        adj_types=[block.edge_type for block in mb.blocks],
    )
    try:
        from torch_geometric.data import Data
    except ImportError:
        return batch
    return Data(**vars(batch), num_nodes=mb.num_inputs)


def _is_row(value: Any, length: int) -> bool:
    return isinstance(value, tuple | list) and len(value) == length


def _from_layers(batch: Any) -> list[Block]:
    for name in ("adjs", "adj_weights", "adj_types"):
        value = getattr(batch, name, None)
        check_type(name, value, (list, tuple, NoneType), "pass a list with one entry per layer, as to_pyg gives it")
    for layer, adj in enumerate(batch.adjs):
        if not (_is_row(adj, 3) and _is_row(adj[2], 2)):
            raise ValueError(f"adjs[{layer}] is {adj!r:.99}; give (edge_index, e_id, (num_src, num_dst)) per layer")
        for count in adj[2]:
            check_at_least(f"a size of adjs[{layer}]", count, 0, most=len(batch.n_id))
    none = [None] * len(batch.adjs)
    weights, types = getattr(batch, "adj_weights", None) or none, getattr(batch, "adj_types", None) or none
    if not len(batch.adjs) == len(weights) == len(types):
        raise ValueError(
            f"the batch has {len(batch.adjs)} adjs, {len(weights)} adj_weights and {len(types)} adj_types; give one of "
            "each per layer"
        )
    blocks = []
    for (edges, e_id, (num_src, num_dst)), weight, kind in zip(batch.adjs, weights, types, strict=True):
        attributes = {"edge_ids": e_id, "edge_weight": weight, "edge_type": kind}
        src, dst = check_edge_index(edges)
        blocks.append(block_from_edges(src, dst, num_src, num_dst, attributes))
    return blocks


def from_pyg(batch: Any, step: int = 0) -> MiniBatch:
    """The batch of what `to_pyg` returned, exactly; or of what PyG's `NeighborLoader` yields.

    Args:
        batch: with `n_id` and either `adjs` or, as `NeighborLoader` gives them, `edge_index` and `num_sampled_nodes`.
            Of the latter the blocks are views of one CSR, as of a DENSE sample. All that kernels trust is checked;
            a node may occur twice only in a disjoint batch (one that has `batch`).
        step: number of the batch.

    Raises:
        TypeError: ids or edges that are no integer tensors.
        ValueError: a batch that has neither, or whose parts do not fit each other.
        IndexError: an edge that joins no positions in `n_id`.
    """
    if getattr(batch, "n_id", None) is None:
        raise ValueError("the batch has no n_id; pass a batch of PyG's NeighborLoader, or what to_pyg returned")
    node_ids = check_ids("n_id", batch.n_id, INT64_MAX)
    if getattr(batch, "adjs", None) is not None:
        blocks = _from_layers(batch)
    elif getattr(batch, "num_sampled_nodes", None) is not None:
        blocks = blocks_of_hops(batch)
    else:
        raise ValueError(
            "the batch has neither adjs nor num_sampled_nodes; NeighborLoader gives the latter with pyg-lib (not with "
            'torch-sparse) and subgraph_type="directional". Install pyg-lib, or take the batch from to_pyg'
        )
    disjoint = getattr(batch, "batch", None) is not None
    return MiniBatch(node_ids, tuple(blocks), step=step).validate(unique=not disjoint)


def graph_to_pyg(graph: Graph) -> dict[str, Any]:
    """What PyG's `Data` is made of (`Data(**graph_to_pyg(graph))`), edges in the caller's order.

    Args:
        graph: any, with edge ids (if any) that are positions in a whole edge list.

    Raises:
        ValueError: edge ids that are not.
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


def graph_from_pyg(data: Any) -> Graph:
    """The graph of a PyG `Data`: its `edge_index`, `num_nodes`, `edge_weight`, `edge_type` and `node_type`.

    Raises:
        TypeError: an `edge_index` that is no integer tensor.
        ValueError: no `edge_index`, or one that has not two rows.
        IndexError: an id out of range.
    """
    if getattr(data, "edge_index", None) is None:
        raise ValueError(f"the {type(data).__name__} has no edge_index; pass a PyG Data of one node and edge type")
    src, dst = check_edge_index(data.edge_index)
    weight, kind, node_kind = (getattr(data, name, None) for name in ("edge_weight", "edge_type", "node_type"))
    nodes = getattr(data, "num_nodes", None)
    return Graph.from_edges(src, dst, num_nodes=nodes, edge_weight=weight, edge_type=kind, node_type=node_kind)
