"""Micro-batches of DGL blocks: split by position, with the rows of node and edge data gathered when they are read."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.core.shared_storage import total_bytes
from workbench.interop.dgl import blocks_from_dgl, blocks_to_dgl

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

    Args:
        part: a micro-batch of `batch_of_positions(whole)`.
        whole: the DGL blocks of the batch.
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


def release_prefetched(blocks: Sequence[Any]) -> None:
    """Replace columns that DGL's DataLoader gathered for the whole batch by the graph's, gathered again when read.

    The blocks have the columns of the graph in every layer, not gathered in the other layers. A gathered column is
    replaced if the graph's has the same values at its nodes, so what the blocks contain does not change. Otherwise the
    features of the whole batch would stay in memory beside those of each part.

    Args:
        blocks: the DGL blocks of a batch.
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
    """Bytes of the node and edge data that DGL blocks have gathered on their device already, each storage once.

    Args:
        blocks: the DGL blocks of a batch.
    """
    from dgl.frame import Column

    frames = [frame for block in blocks for frame in (*block._node_frames, *block._edge_frames)]
    columns = [column for frame in frames for column in frame._columns.values() if isinstance(column, Column)]
    return total_bytes(c.storage for c in columns if c.index is None and c.storage.device == blocks[0].device)


def _positions(block: Any) -> dict[str, Tensor | None]:
    dtype = torch.int32 if block.num_edges() < 2**31 else torch.int64
    return {"edge_ids": torch.arange(block.num_edges(), dtype=dtype, device=block.device)}


def _carry(target: Any, source: Any, rows: Tensor) -> None:
    """Add the columns of a frame to another one that has these rows of it."""
    for name, column in source._columns.items():
        if name not in target:
            target.update_column(name, _rows_of(column, rows))


def _rows_of(column: Any, rows: Tensor) -> Any:
    from dgl.frame import Column, LazyFeature, _LazyIndex

    if isinstance(column, LazyFeature):
        return LazyFeature(column.name, None if column.id_ is None else column.id_[rows])
    if column.index is None:
        return column.subcolumn(rows)
    # subcolumn would compose the two indices now, for every column of every block
    chain = column.index._indices if isinstance(column.index, _LazyIndex) else [column.index]
    return Column(column.storage, column.scheme, _LazyIndex([*chain, rows]), column.device, column.deferred_dtype)
