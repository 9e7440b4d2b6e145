"""Conversions to and from DGL: batches as lists of DGL blocks, graphs as DGL graphs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import INT64_MAX, check_ids, check_type, check_unique
from workbench.core.graph import Graph
from workbench.interop.edge_lists import block_from_edges, check_edge_ids, in_callers_order


def _set(frame: Any, values: Mapping[str, Tensor | None]) -> None:
    for name, value in values.items():
        if value is not None:
            frame[name] = value


def _csc(rows: Block | Graph, edge_ids: Tensor | None) -> tuple[str, tuple[Tensor, Tensor, Tensor]]:
    """Return the arrays in CSC form, which DGL accepts without sorting.

    Edge ids are always passed: DGL accepts a graph without them, but then its GATConv fails.
    """
    edge_ids = torch.arange(rows.num_edges, device=rows.device) if edge_ids is None else edge_ids
    return "csc", (rows.indptr, rows.indices.to(torch.int64), edge_ids)


def _block_to_dgl(node_ids: Tensor, block: Block) -> Any:
    import dgl

    out = dgl.create_block(_csc(block, None), num_src_nodes=block.num_src, num_dst_nodes=block.num_dst)
    _set(out.srcdata, {dgl.NID: node_ids[: block.num_src]})
    _set(out.dstdata, {dgl.NID: node_ids[: block.num_dst]})
    _set(out.edata, {dgl.EID: block.edge_ids, "edge_weight": block.edge_weight, dgl.ETYPE: block.edge_type})
    return out


def blocks_to_dgl(node_ids: Tensor, blocks: Sequence[Block]) -> list[Any]:
    """Convert blocks to DGL blocks with int64 ids, keeping the order of edges.

    Each DGL block has raw-graph ids in `srcdata[dgl.NID]` and `dstdata[dgl.NID]` and, if the block has them, edge ids,
    weights and types in `edata[dgl.EID]`, `edata["edge_weight"]` and `edata[dgl.ETYPE]`. It shares the CSC arrays of
    the block; no other sparse format is created.
    """
    return [_block_to_dgl(node_ids, block) for block in blocks]


def _check_one_type(name: str, graph: Any, node_types: Sequence[str]) -> None:
    import dgl

    check_type(name, graph, dgl.DGLGraph, "pass an object of DGL (from its DataLoader's triple: the third, blocks)")
    if len(graph.canonical_etypes) != 1 or len(node_types) != 1:
        raise ValueError(f"{name} has several node or edge types; convert it first (dgl.to_homogeneous)")


def _raw_ids(frame: Mapping[str, Tensor], layer: int) -> Tensor:
    import dgl

    if dgl.NID not in frame:
        raise ValueError(f"block {layer} has no raw-graph ids; set srcdata[dgl.NID] and dstdata[dgl.NID]")
    return check_ids(f"{dgl.NID} of block {layer}", frame[dgl.NID], INT64_MAX)


def _check_prefix(block: Any, layer: int, node_ids: Tensor) -> None:
    """Check that the block's sources and destinations are prefixes of `node_ids`."""
    num_src, num_dst = block.num_src_nodes(), block.num_dst_nodes()
    if layer and not torch.equal(_raw_ids(block.srcdata, layer), node_ids[:num_src]):
        raise ValueError(
            f"the sources of block {layer} are not the destinations of block {layer - 1}; pass the input layer first"
        )
    if not torch.equal(_raw_ids(block.dstdata, layer), node_ids[:num_dst]):
        raise ValueError(
            f"the destinations of block {layer} are not the prefix of its sources; use include_dst_in_src=True"
        )


EdgeAttributes = Callable[[Any], dict[str, Tensor | None]]
"""Maps a DGL block to edge fields of `Block` by name, in the order of its edge ids."""


def _edge_attributes(block: Any) -> dict[str, Tensor | None]:
    import dgl

    # By name: listing a frame's columns would gather all of them. DGL's placeholders of columns that its DataLoader
    # fetches later are no values.
    names = (dgl.EID, "edge_weight", "edge_weights", dgl.ETYPE)  # the plural is LaborSampler's
    values = {name: value for name in names if isinstance(value := block.edata.get(name), Tensor)}
    edge_ids = values.get(dgl.EID)
    return {
        "edge_ids": None if edge_ids is None else check_ids(dgl.EID, edge_ids, INT64_MAX),
        "edge_weight": values.get("edge_weight", values.get("edge_weights")),
        "edge_type": values.get(dgl.ETYPE),
    }


def block_from_dgl(block: Any, edge_attributes: EdgeAttributes) -> Block:
    """Convert a DGL block, without checking its ids.

    Args:
        edge_attributes: reads the edge fields of the block.
    """
    src, dst = block.edges(order="eid")
    return block_from_edges(src, dst, block.num_src_nodes(), block.num_dst_nodes(), edge_attributes(block))


def blocks_from_dgl(
    blocks: Sequence[Any], edge_attributes: EdgeAttributes = _edge_attributes
) -> tuple[Tensor, tuple[Block, ...]]:
    """Convert DGL blocks, as DGL's samplers return them, to node ids and blocks: the inverse of `blocks_to_dgl`.

    Edges are ordered by their ids; if that does not group them by destination, they are sorted stably. Everything that
    kernels trust is checked.

    Args:
        blocks: input layer first, with raw-graph ids in `dgl.NID`; the destinations of a block must be the prefix of
            its sources and the sources of the next block.
        edge_attributes: reads the edge fields of a block; by default those that `blocks_to_dgl` writes.

    Returns:
        Raw-graph node ids, int64 [num_inputs], and the blocks.
    """
    check_type("blocks", blocks, Sequence, "pass the list of blocks from DGL's sampler, input layer first")
    if not len(blocks):
        raise ValueError("blocks is empty; pass at least one DGL block")
    import dgl

    for layer, block in enumerate(blocks):
        _check_one_type(f"block {layer}", block, getattr(block, "srctypes", ()))
    node_ids = _raw_ids(blocks[0].srcdata, 0)
    check_unique(f"srcdata[{dgl.NID!r}] of block 0", node_ids)
    for layer, block in enumerate(blocks):
        _check_prefix(block, layer, node_ids)
    return node_ids, tuple(block_from_dgl(block, edge_attributes).validate() for block in blocks)


def graph_to_dgl(graph: Graph) -> Any:
    """Convert a graph to a DGL graph, keeping edge ids: `Graph.to_dgl`."""
    import dgl

    check_edge_ids(graph)
    values = {"edge_weight": in_callers_order(graph, graph.edge_weight)}
    values |= {dgl.ETYPE: in_callers_order(graph, graph.edge_type)}
    out = dgl.graph(_csc(graph, graph.edge_ids), num_nodes=graph.num_nodes)
    _set(out.edata, values)
    _set(out.ndata, {dgl.NTYPE: graph.node_type})
    return out


def graph_from_dgl(graph: Any) -> Graph:
    """Convert a homogeneous DGL graph; each node's in-edges are ordered by edge id: `Graph.from_dgl`."""
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
