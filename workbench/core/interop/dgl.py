"""Exchange with DGL: batches as lists of its blocks, graphs as its graphs."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import INT64_MAX, check_ids, check_type, check_unique
from workbench.core.graph import Graph
from workbench.core.interop.edges import block_from_edges, check_edge_ids, in_callers_order, refuse_halo
from workbench.core.minibatch import MiniBatch


def _set(frame: Any, values: Mapping[str, Tensor | None]) -> None:
    for name, value in values.items():
        if value is not None:
            frame[name] = value


def _csc(rows: Block | Graph, edge_ids: Tensor | None) -> tuple[str, tuple[Tensor, Tensor, Tensor]]:
    """The arrays as DGL takes them without sorting; it accepts no edge ids at all too, but then its GAT fails."""
    edge_ids = torch.arange(rows.num_edges, device=rows.device) if edge_ids is None else edge_ids
    return "csc", (rows.indptr, rows.indices.to(torch.int64), edge_ids)


def _block_to_dgl(mb: MiniBatch, block: Block) -> Any:
    import dgl

    out = dgl.create_block(_csc(block, None), num_src_nodes=block.num_src, num_dst_nodes=block.num_dst)
    _set(out.srcdata, {dgl.NID: mb.node_ids[: block.num_src]})
    _set(out.dstdata, {dgl.NID: mb.node_ids[: block.num_dst]})
    _set(out.edata, {dgl.EID: block.edge_ids, "edge_weight": block.edge_weight, dgl.ETYPE: block.edge_type})
    return out


def to_dgl(mb: MiniBatch) -> list[Any]:
    """The blocks as DGL blocks with int64 ids, edges in the same order.

    Each has raw-graph ids in `srcdata[dgl.NID]` and `dstdata[dgl.NID]` and, as far as known, `edata[dgl.EID]`,
    `edata["edge_weight"]` and `edata[dgl.ETYPE]`. Only the CSC form is built, from the block's own arrays.

    Args:
        mb: any batch without halo; its `parent` and `step` are not carried.

    Raises:
        ValueError: a cooperative batch.
    """
    refuse_halo(mb)
    return [_block_to_dgl(mb, block) for block in mb.blocks]


def _check_one_type(name: str, graph: Any, node_types: Sequence[str]) -> None:
    import dgl

    check_type(name, graph, dgl.DGLGraph, "pass what DGL made (of its loader's triple the third, blocks)")
    if len(graph.canonical_etypes) != 1 or len(node_types) != 1:
        raise ValueError(f"{name} has several node or edge types; convert it first (dgl.to_homogeneous)")


def _raw_ids(frame: Mapping[str, Tensor], layer: int) -> Tensor:
    import dgl

    if dgl.NID not in frame:
        raise ValueError(f"block {layer} has no raw-graph ids; set srcdata[dgl.NID] and dstdata[dgl.NID]")
    return check_ids(f"{dgl.NID} of block {layer}", frame[dgl.NID], INT64_MAX)


def _check_prefix(block: Any, layer: int, node_ids: Tensor) -> None:
    """The block's nodes must be those that one list of ids gives to every layer."""
    num_src, num_dst = block.num_src_nodes(), block.num_dst_nodes()
    if layer and not torch.equal(_raw_ids(block.srcdata, layer), node_ids[:num_src]):
        raise ValueError(f"sources of block {layer} are not the destinations before it; pass the input layer first")
    if not torch.equal(_raw_ids(block.dstdata, layer), node_ids[:num_dst]):
        raise ValueError(f"destinations of block {layer} are no prefix of its sources; use include_dst_in_src=True")


def _block_from_dgl(block: Any) -> Block:
    import dgl

    src, dst = block.edges(order="eid")
    edata = dict(block.edata)
    edge_ids = edata.get(dgl.EID)
    attributes = {
        "edge_ids": None if edge_ids is None else check_ids(dgl.EID, edge_ids, INT64_MAX),
        "edge_weight": edata.get("edge_weight", edata.get("edge_weights")),  # the plural is that of DGL's LaborSampler
        "edge_type": edata.get(dgl.ETYPE),
    }
    return block_from_edges(src, dst, block.num_src_nodes(), block.num_dst_nodes(), attributes)


def from_dgl(blocks: Sequence[Any], step: int = 0) -> MiniBatch:
    """The batch of DGL blocks as DGL's samplers make them: the inverse of `to_dgl`.

    Edges are taken in the order of their ids; where that does not group them by destination, they are sorted stably.
    All that kernels trust is checked.

    Args:
        blocks: input layer first, with raw-graph ids in `dgl.NID`; destinations are the prefix of sources, and the
            destinations of a block the sources of the next.
        step: number of the batch.

    Raises:
        TypeError: something else than DGL blocks, or raw-graph ids that are no integers.
        ValueError: no blocks, several types, no raw-graph ids, ids that occur twice, or blocks that do not fit each
            other.
        IndexError: a negative raw-graph id.
    """
    check_type("blocks", blocks, Sequence, "pass the list of blocks that DGL's sampler made, input layer first")
    if not len(blocks):
        raise ValueError("blocks is empty; pass at least one DGL block")
    import dgl

    for layer, block in enumerate(blocks):
        _check_one_type(f"block {layer}", block, getattr(block, "srctypes", ()))
    node_ids = _raw_ids(blocks[0].srcdata, 0)
    check_unique(f"srcdata[{dgl.NID!r}] of block 0", node_ids)
    for layer, block in enumerate(blocks):
        _check_prefix(block, layer, node_ids)
    return MiniBatch(node_ids, tuple(_block_from_dgl(block).validate() for block in blocks), step=step)


def graph_to_dgl(graph: Graph) -> Any:
    """The graph for DGL, its edge ids those of the caller's list; attributes are named as by `to_dgl`.

    Args:
        graph: any, with edge ids (if any) that are positions in a whole edge list.

    Raises:
        ValueError: edge ids that are not.
    """
    import dgl

    check_edge_ids(graph)
    values = {"edge_weight": in_callers_order(graph, graph.edge_weight)}
    values |= {dgl.ETYPE: in_callers_order(graph, graph.edge_type)}
    out = dgl.graph(_csc(graph, graph.edge_ids), num_nodes=graph.num_nodes)
    _set(out.edata, values)
    _set(out.ndata, {dgl.NTYPE: graph.node_type})
    return out


def graph_from_dgl(graph: Any) -> Graph:
    """The graph of a DGL graph of one type; a node's in-edges stand in the order of their ids.

    Args:
        graph: its `edata["edge_weight"]`, `edata[dgl.ETYPE]` and `ndata[dgl.NTYPE]` are taken along.

    Raises:
        ValueError: several node or edge types.
    """
    import dgl

    _check_one_type("the graph", graph, getattr(graph, "ntypes", ()))
    src, dst = graph.edges(order="eid")
    edata, ndata = dict(graph.edata), dict(graph.ndata)
    return Graph.from_edges(
        src,
        dst,
        num_nodes=graph.num_nodes(),
        edge_weight=edata.get("edge_weight"),
        edge_type=edata.get(dgl.ETYPE),
        node_type=ndata.get(dgl.NTYPE),
    )
