"""Exchange with PyTorch Geometric: batches and graphs in its `edge_index` form."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.graph import Graph
from workbench.core.interop.edges import block_from_edges, check_edge_ids, in_callers_order, refuse_halo
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


def _from_layers(batch: Any) -> list[Block]:
    none = [None] * len(batch.adjs)
    weights, types = getattr(batch, "adj_weights", None) or none, getattr(batch, "adj_types", None) or none
    blocks = []
    for (edges, e_id, (num_src, num_dst)), weight, kind in zip(batch.adjs, weights, types, strict=True):
        attributes = {"edge_ids": e_id, "edge_weight": weight, "edge_type": kind}
        blocks.append(block_from_edges(edges[0], edges[1], num_src, num_dst, attributes))
    return blocks


def _from_hops(batch: Any) -> list[Block]:
    """One block a layer, row prefixes of one CSR."""
    met = torch.tensor(batch.num_sampled_nodes).cumsum(0).tolist()
    theirs = {"edge_ids": "e_id", "edge_weight": "edge_weight", "edge_type": "edge_type"}
    attributes = {name: getattr(batch, other, None) for name, other in theirs.items()}
    whole = block_from_edges(batch.edge_index[0], batch.edge_index[1], met[-1], met[-2], attributes)
    blocks = []
    for num_dst, num_src in zip(met[-2::-1], met[:0:-1], strict=True):
        indptr = whole.indptr[: num_dst + 1]
        fields = {name: t[: int(indptr[-1])] for name, t in whole._tensors().items() if t is not None}
        blocks.append(replace(whole, **fields | {"indptr": indptr}, num_src=num_src, num_dst=num_dst))
    return blocks


def from_pyg(batch: Any, step: int = 0) -> MiniBatch:
    """The batch of what `to_pyg` returned, exactly; or of what PyG's `NeighborLoader` yields.

    Args:
        batch: with `n_id` and either `adjs` or, as `NeighborLoader` gives them, `edge_index` and `num_sampled_nodes`.
            Of the latter the blocks are views of one CSR, as of a DENSE sample.
        step: number of the batch.

    Raises:
        ValueError: a batch that has neither.
    """
    if getattr(batch, "adjs", None) is not None:
        return MiniBatch(batch.n_id, tuple(_from_layers(batch)), step=step)
    if getattr(batch, "num_sampled_nodes", None) is None:
        raise ValueError("the batch has neither adjs nor num_sampled_nodes; take it from to_pyg or NeighborLoader")
    return MiniBatch(batch.n_id, tuple(_from_hops(batch)), step=step)


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
    """The graph of a PyG `Data`: its `edge_index`, `num_nodes`, `edge_weight`, `edge_type` and `node_type`."""
    src, dst = data.edge_index
    weight, kind, node_kind = (getattr(data, name, None) for name in ("edge_weight", "edge_type", "node_type"))
    return Graph.from_edges(src, dst, num_nodes=data.num_nodes, edge_weight=weight, edge_type=kind, node_type=node_kind)
