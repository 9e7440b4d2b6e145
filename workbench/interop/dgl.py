"""Conversions to and from DGL: batches as lists of DGL blocks, graphs as DGL graphs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import INT64_MAX, check_ids, check_type, check_unique
from workbench.core.exchange import refuse_halo
from workbench.core.graph import Graph
from workbench.core.minibatch import CarriedData, MiniBatch, Positions, Remembered
from workbench.core.shared_storage import total_bytes
from workbench.interop.edge_lists import block_from_edges, check_edge_ids, in_callers_order
from workbench.interop.pyg import carried_attributes, edge_rows, node_rows
from workbench.kernels.csr import index_dtype


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


_CHUNK_BYTES = 1 << 20


def batch_of_positions(blocks: Sequence[Any]) -> MiniBatch:
    """Convert DGL blocks to a batch whose edge ids are positions in the edge data of each block.

    No column of node or edge data but the raw-graph ids of nodes is read.

    Args:
        blocks: input layer first, as for `blocks_from_dgl`.
    """
    return MiniBatch(*blocks_from_dgl(blocks, _positions))


def part_of_blocks(part: MiniBatch, whole: Sequence[Any]) -> list[Any]:
    """Convert a micro-batch to DGL blocks that carry every column of the batch's blocks, its rows not yet gathered.

    A column refers to that of the batch and is gathered when it is first read: DGL reads features that a graph stores
    in the same way. Columns that DGL's DataLoader has yet to fetch (`LazyFeature`) stay such.
    """
    assert part.parent is not None
    bare = [replace(block, edge_ids=None) for block in part.blocks]
    blocks = blocks_to_dgl(part.node_ids, bare)
    for out, block, source in zip(blocks, part.blocks, whole, strict=True):
        (src, dst), (src_of, dst_of) = out._node_frames, source._node_frames
        assert block.edge_ids is not None
        _carry(src, src_of, part.parent[: block.num_src])
        _carry(dst, dst_of, part.parent[: block.num_dst])
        _carry(out._edge_frames[0], source._edge_frames[0], block.edge_ids)
    return blocks


def carried_columns(blocks: Sequence[Any]) -> CarriedData | None:
    """Refer to the node and edge data of DGL blocks; None if they have no columns but ids and the fields of `Block`.

    Args:
        blocks: input layer first, as for `blocks_from_dgl`.
    """
    known = _of_structure()
    if all(frame._columns.keys() <= known for block in blocks for frame in _frames(block)):
        return None
    sizes = blocks[0].num_src_nodes(), tuple(block.num_edges() for block in blocks)
    return CarriedData(blocks, None, Remembered(_positions_of_edges, blocks), *sizes)


def add_carried_columns(mb: MiniBatch, blocks: Sequence[Any]) -> None:
    """Add the columns that a batch carries to the DGL blocks that it was converted to.

    Args:
        mb: a batch of `MiniBatch.from_dgl`, or a micro-batch of one; nothing is added for any other.
        blocks: the blocks of `mb`, which are modified.
    """
    carried = mb.carried
    if carried is None or hasattr(carried.source, "n_id"):
        return
    nodes, reads_edges = carried.rows_of_nodes(mb.num_inputs), has_edge_columns(carried.source)
    edges = carried.rows_of_edges(mb.blocks) if reads_edges else (None,) * len(blocks)
    for out, source, of_edges in zip(blocks, carried.source, edges, strict=reads_edges):
        device = None if out.device == source.device else out.device
        (src, dst, edata), (src_of, dst_of, edata_of) = _frames(out), _frames(source)
        _carry(src, src_of, None if nodes is None else nodes[: out.num_src_nodes()], device)
        _carry(dst, dst_of, None if nodes is None else nodes[: out.num_dst_nodes()], device)
        if reads_edges:
            _carry(edata, edata_of, of_edges, device)


def batch_to_dgl(mb: MiniBatch) -> list[Any]:
    """Convert a batch and the data that it carries to DGL blocks: `MiniBatch.to_dgl`."""
    refuse_halo(mb.exchanges, "converted to DGL")
    blocks = blocks_to_dgl(mb.node_ids, mb.blocks)
    add_carried_columns(mb, blocks)
    return blocks


def batch_from_dgl(blocks: Sequence[Any], step: int = 0) -> MiniBatch:
    """Convert DGL blocks to a batch that refers to their node and edge data: `MiniBatch.from_dgl`."""
    return MiniBatch(*blocks_from_dgl(blocks), step=step, carried=carried_columns(blocks))


def has_edge_columns(blocks: Sequence[Any]) -> bool:
    """Return whether DGL blocks have edge data beyond ids and the fields of `Block`.

    Args:
        blocks: blocks of DGL.
    """
    return any(not block._edge_frames[0]._columns.keys() <= _of_structure() for block in blocks)


def node_data_widths(blocks: Sequence[Any]) -> list[int]:
    """Widths of the floating-point columns of matrices that the sources of the first DGL block have.

    Args:
        blocks: input layer first, at least one.
    """
    columns = blocks[0]._node_frames[0]._columns.values()
    schemes = (column.scheme for column in columns if hasattr(column, "scheme"))
    return [scheme.shape[0] for scheme in schemes if len(scheme.shape) == 1 and scheme.dtype.is_floating_point]


def _of_structure() -> set[str]:
    """Names of columns that `blocks_to_dgl` writes."""
    import dgl

    return {dgl.NID, dgl.EID, dgl.ETYPE, "edge_weight"}


def release_prefetched(blocks: Sequence[Any]) -> None:
    """Replace columns that DGL's DataLoader gathered for the whole batch by the graph's, gathered again when read.

    The blocks have the columns of the graph in every layer, not gathered in the other layers. A gathered column is
    replaced if the graph's has the same values at its nodes, so what the blocks contain does not change. Otherwise the
    features of the whole batch would stay in memory beside those of each part.
    """
    import dgl

    frames = [frame for block in blocks for frame in block._node_frames]
    of_graph = {name: column for frame in frames for name, column in _graph_columns(frame)}
    for frame in frames:
        for name, column in list(frame._columns.items()):
            source = of_graph.get(name)
            if source is not None and _is_gathered(column):
                lazy = type(source)(source.storage, source.scheme, frame[dgl.NID], (column.storage.device, {}))
                if _same_rows(column.storage, source.storage, frame[dgl.NID]):
                    frame._columns[name] = lazy


def _graph_columns(frame: Any) -> Iterator[tuple[str, Any]]:
    """The columns of a frame that refer to the rows of the graph's by raw-graph id, by name."""
    import dgl
    from dgl.frame import Column

    ids = frame._columns[dgl.NID].storage
    for name, column in frame._columns.items():
        index = column.index if isinstance(column, Column) else None
        if isinstance(index, Tensor) and index.data_ptr() == ids.data_ptr() and len(index) == len(ids):
            yield name, column


def _is_gathered(column: Any) -> bool:
    from dgl.frame import Column

    return isinstance(column, Column) and column.index is None and column.device is None


def _same_rows(rows: Tensor, storage: Tensor, ids: Tensor) -> bool:
    """Whether `rows` are `storage[ids]`, compared in chunks so that no copy as large as the rows is made."""
    if rows.shape[1:] != storage.shape[1:] or rows.dtype != storage.dtype or rows.data_ptr() == storage.data_ptr():
        return False
    size = max(1, _CHUNK_BYTES * len(rows) // max(1, rows.nbytes))
    chunks = zip(rows.split(size), ids.to(storage.device).split(size), strict=True)
    return all(torch.equal(some.to(storage.device), storage[at]) for some, at in chunks)


def resident_bytes(blocks: Sequence[Any]) -> int:
    """Bytes of the node and edge data that DGL blocks have gathered on their device already, each storage once."""
    from dgl.frame import Column

    frames = [frame for block in blocks for frame in (*block._node_frames, *block._edge_frames)]
    columns = [column for frame in frames for column in frame._columns.values() if isinstance(column, Column)]
    return total_bytes(c.storage for c in columns if c.index is None and c.storage.device == blocks[0].device)


def _positions(block: Any) -> dict[str, Tensor | None]:
    count = block.num_edges()
    return {"edge_ids": torch.arange(count, dtype=index_dtype(count), device=block.device)}


def _frames(block: Any) -> tuple[Any, Any, Any]:
    """Data of sources, of destinations and of edges."""
    return *block._node_frames, block._edge_frames[0]


def _positions_of_edges(blocks: Sequence[Any]) -> Positions:
    converted = (block_from_dgl(block, _positions).edge_ids for block in blocks)
    return tuple(None if ids is None or _is_in_order(ids) else ids for ids in converted)


def _is_in_order(positions: Tensor) -> bool:
    return torch.equal(positions, torch.arange(len(positions), dtype=positions.dtype, device=positions.device))


def _carry(target: Any, source: Any, rows: Tensor | None, device: torch.device | None = None) -> None:
    """Add the columns of a frame to another one that has these rows of it (None: all), moved to a device when read."""
    for name, column in source._columns.items():
        if name not in target:
            some = _rows_of(column, rows)
            target.update_column(name, some if device is None else some.to(device))


def _rows_of(column: Any, rows: Tensor | None) -> Any:
    from dgl.frame import Column, LazyFeature, _LazyIndex

    if rows is None:
        return column.clone() if isinstance(column, Column) else column
    if isinstance(column, LazyFeature):
        return LazyFeature(column.name, None if column.id_ is None else column.id_[rows])
    if column.index is None:
        return column.subcolumn(rows)
    # subcolumn would compose the two indices now, for every column of every block
    chain = column.index._indices if isinstance(column.index, _LazyIndex) else [column.index]
    return Column(column.storage, column.scheme, _LazyIndex([*chain, rows]), column.device, column.deferred_dtype)


def with_carried_dtype(mb: MiniBatch, dtype: torch.dtype | None) -> MiniBatch:
    """Gather the data that a batch carries and convert floating-point data; for a batch of a few nodes.

    Args:
        mb: a batch; without carried data it is returned as it is.
        dtype: dtype of the data; None returns the batch as it is.
    """
    if mb.carried is None or dtype is None:
        return mb
    if hasattr(mb.carried.source, "n_id"):
        return _with_attributes(mb, dtype)
    blocks = mb.to_dgl()
    for block in blocks:
        for frame in (*block._node_frames, *block._edge_frames):
            for name, column in list(frame._columns.items()):
                if hasattr(column, "scheme"):  # not a placeholder of what DGL's DataLoader has yet to fetch
                    frame[name] = _converted(frame[name], dtype)
    sizes = mb.num_inputs, tuple(block.num_edges for block in mb.blocks)
    return replace(mb, carried=CarriedData(blocks, None, partial(tuple, [None] * len(blocks)), *sizes))


def _with_attributes(mb: MiniBatch, dtype: torch.dtype) -> MiniBatch:
    batch: Any = mb.to_pyg()
    for name, rows in edge_rows(mb).items():
        setattr(batch, name, _converted(rows()[0], dtype))
    for name, of_nodes in node_rows(mb).items():
        setattr(batch, name, _converted(of_nodes(), dtype))
    return replace(mb, carried=carried_attributes(batch, mb.blocks))


def _converted(rows: Tensor, dtype: torch.dtype) -> Tensor:
    return rows.to(dtype) if rows.is_floating_point() else rows
