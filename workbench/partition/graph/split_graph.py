"""`split_graph`: the edges of a stream brought into rows on disk, in two passes: a counting sort outside of memory."""

import mmap
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from workbench import files
from workbench.core.array_store import open_arrays, other_than_saved, save_arrays, saved_digest
from workbench.core.edge_stream import CHUNK_EDGES, EdgeSource, check_repeatable, count_nodes, edge_chunks
from workbench.core.errors import check_at_least, check_ids
from workbench.core.graph import Graph
from workbench.kernels.csr import index_dtype, offsets
from workbench.kernels.jit import compiled

Progress = Callable[[int], object] | None
"""Called after every chunk with the number of edges read so far."""


class Rows(NamedTuple):
    """Where the rows of all nodes begin among the edges of all parts, part after part.

    Args:
        owner: int32 [num_nodes].
        degree: int64 [num_nodes], in-edges of every node.
        start: int64 [num_nodes].
        part_start: int64 [num_parts + 1].
    """

    owner: Tensor
    degree: Tensor
    start: Tensor
    part_start: Tensor

    @staticmethod
    def of(edges: EdgeSource, owner: Tensor, num_parts: int, progress: Progress) -> "Rows":
        """Count the in-edges of every node: the first pass."""
        degree, done = torch.zeros(len(owner), dtype=torch.int64), 0
        for _, dst in edge_chunks(edges, len(owner)):
            degree.index_add_(0, dst, torch.ones_like(dst))
            done += len(dst)
            if progress is not None:
                progress(done)
        order = torch.argsort(owner, stable=True)
        start = torch.empty_like(degree)
        ends = degree[order].cumsum(0)
        start[order] = ends - degree[order]
        per_part = torch.zeros(num_parts, dtype=torch.int64).index_add_(0, owner, degree)
        return Rows(owner, degree, start, offsets(per_part))


class PlacedEdges(NamedTuple):
    """All edges in the order of their rows, in files without names.

    Args:
        sources: int32 or int64 [num_edges].
        positions: int64 [num_edges], of each edge in the stream; None if nothing is stored per edge.
    """

    sources: Tensor
    positions: Tensor | None


def place_edges(edges: EdgeSource, rows: Rows, folder: Path, with_positions: bool, progress: Progress) -> PlacedEdges:
    """Write every edge to its row, in files without names on the folder's disk: the second pass.

    Raises:
        ValueError: if the edges are others than those that were counted.
        OSError: if the disk is full.
    """
    num_nodes, num_edges = len(rows.owner), int(rows.part_start[-1])
    dtype = edges.indices.dtype if isinstance(edges, Graph) else index_dtype(num_nodes)
    sources = _file_backed(folder, num_edges, dtype)
    positions = _file_backed(folder, num_edges if with_positions else 0, torch.int64)
    cursor, done = rows.start.clone(), 0
    arrays = cursor.numpy(), sources.numpy(), positions.numpy()
    for src, dst in edge_chunks(edges, num_nodes):
        if not _write_edges(src.numpy(), dst.numpy(), done, *arrays):
            break
        done += len(src)
        if progress is not None:
            progress(num_edges + done)
    if not torch.equal(cursor, rows.start + rows.degree):
        raise ValueError("the second pass over the edges yields others than the first; pass edges that stay the same")
    return PlacedEdges(sources, positions if with_positions else None)


@compiled
def _write_edges(src, dst, first, cursor, sources, positions):
    """Place edges whose positions begin at `first`; return whether all of them have room."""
    for e in range(len(src)):
        slot = cursor[dst[e]]
        cursor[dst[e]] = slot + 1
        if slot >= len(sources):
            return False
        sources[slot] = src[e]
        if len(positions):
            positions[slot] = first + e
    return True


def _file_backed(folder: Path, count: int, dtype: torch.dtype) -> Tensor:
    """Allocate a tensor in a file without a name, whose space on disk is reserved: a full disk raises here."""
    if not count:
        return torch.empty(0, dtype=dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, count * dtype.itemsize)
        file.truncate(count * dtype.itemsize)
        return torch.frombuffer(mmap.mmap(file.fileno(), count * dtype.itemsize), dtype=dtype)


_EDGE_ATTRIBUTES = ("edge_weight", "edge_type")

_OWNER = "owner"

_NUM_PARTS = "num_parts"  # which the owners tell only if the last part owns a node


class GraphPart(NamedTuple):
    """What one rank loads of a graph that `split_graph` divided.

    Args:
        graph: memory-mapped, with the ids of the whole graph; rows of nodes that other parts own are empty.
        owner: int32 [num_nodes], memory-mapped: the part of every node.
        part: number of this part.
    """

    graph: Graph
    owner: Tensor
    part: int


def split_graph(
    edges: EdgeSource,
    owner: Tensor,
    folder: str | os.PathLike[str],
    *,
    num_parts: int | None = None,
    edge_ids: bool = True,
    overwrite: bool = False,
    progress: Progress = None,
) -> list[Path]:
    """Write the in-edges of every part's nodes to a folder of its own, in two passes over the edges.

    Memory is needed for the nodes and a chunk. The edges are brought into rows in a temporary file without a name, next
    to the result and as large as its edges; that is fast if they come in the order of their destinations, as a graph's
    do, or if the file fits into memory that is free.

    Args:
        edges: a `Graph`, memory-mapped or not; an `EdgeFile`; or pairs (sources, destinations) of consecutive edges
            that can be iterated twice.
        owner: integer [num_nodes], part of every node, from 0 on: `partition_stream`, `partition_graph`.
        folder: folder to create; the parts are in `part-0`, `part-1`, …, each a graph saved by `Graph.save`, and appear
            together or not at all.
        num_parts: number of parts, some of which may own no node; None: the largest owner + 1, each of which owns one.
        edge_ids: store the id of every edge (8 bytes), which `exclude_edges` needs: that of the graph, or the position
            in the stream.
        overwrite: replace a folder written by this function.
        progress: called after every chunk with the number of edges read, from 0 to twice the edges.

    Returns:
        The folder of every part.

    Raises:
        FileExistsError: if the folder exists and `overwrite` is not set, or was not written by this function.
        ValueError: if `edges` can be read only once, or the second pass yields other edges; without `num_parts`, if a
            part has no node.
        TypeError: if ids or owners are not integers.
        IndexError: if an id is out of range, or an owner is not the number of a part.
        OSError: if the disk is full.

    Source: Hoang et al., "BatchGNN" (2023), section 3: the owner of a node has all of its edges.
    """
    target = Path(folder).resolve()
    num_nodes = count_nodes(edges, len(owner))
    limit = max(1, num_nodes) if num_parts is None else torch.iinfo(torch.int32).max
    owner = check_ids("owner", owner.cpu(), limit).to(torch.int32)
    num_parts = _count_parts(owner, num_parts)
    check_repeatable(edges)
    edges = edges.to("cpu") if isinstance(edges, Graph) else edges
    files.remove_unfinished(target.parent)
    _check_free(target, overwrite)
    with files.new_folder(target, replace=overwrite) as draft:
        rows = Rows.of(edges, owner, num_parts, progress)
        attributes = _attributes(edges, edge_ids)
        placed = place_edges(edges, rows, draft, bool(attributes), progress)
        for part in range(num_parts):
            arrays = _arrays_of_part(edges, rows, placed, attributes, part)
            save_arrays(_part_folder(draft, part), arrays, kind="graph")
        save_arrays(draft / _OWNER, {"owner": owner, _NUM_PARTS: torch.tensor([num_parts])}, kind=_OWNER)
    return [_part_folder(target, part) for part in range(num_parts)]


def open_part(folder: str | os.PathLike[str], part: int, *, verify: bool = False) -> GraphPart:
    """Memory-map one part of a graph that `split_graph` divided.

    Args:
        folder: the folder given to `split_graph`.
        part: number of the part, usually the rank.
        verify: read everything and compare checksums.

    Raises:
        FileNotFoundError: if the folder or the part is missing.
        CorruptFileError: if a file is truncated, modified or not a valid graph.
    """
    root = Path(folder).absolute()
    files.restore(root)
    divided = saved_digest(root / _OWNER, kind=_OWNER)
    owner = open_arrays(root / _OWNER, kind=_OWNER, verify=verify)[_OWNER]
    graph = Graph.open(_part_folder(root, part), verify=verify)
    if saved_digest(root / _OWNER, kind=_OWNER) != divided:
        raise ValueError(f"{root} was divided again while it was being opened; open it again")
    return GraphPart(graph, owner, part)


def stored_num_parts(folder: str | os.PathLike[str]) -> int:
    """Number of parts of a graph that `split_graph` divided.

    Raises:
        FileNotFoundError: if the folder is missing.
        CorruptFileError: if the file of the owners is truncated or not valid.
    """
    root = Path(folder).absolute()
    files.restore(root)
    arrays = open_arrays(root / _OWNER, kind=_OWNER)
    return int(arrays[_NUM_PARTS]) if _NUM_PARTS in arrays else _num_owners(arrays[_OWNER])  # of an earlier version


def _part_folder(folder: Path, part: int) -> Path:
    return folder / f"part-{part}"


def _num_owners(owner: Tensor) -> int:
    return int(owner.max()) + 1 if len(owner) else 0


def _count_parts(owner: Tensor, num_parts: int | None) -> int:
    if num_parts is not None:
        check_at_least("num_parts", num_parts, 1)
        if (owners := _num_owners(owner)) > num_parts:
            raise IndexError(
                f"owner contains {owners - 1}; owners are numbered from 0 on and below num_parts, {num_parts}"
            )
        return int(num_parts)
    sizes = torch.bincount(owner)
    if len(sizes) and int(sizes.min()) == 0:
        raise ValueError(
            f"part {int(sizes.argmin())} of {len(sizes)} has no node; number the parts from 0 without gaps, or pass "
            "num_parts if that is meant"
        )
    return len(sizes)


def _check_free(target: Path, overwrite: bool) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not overwrite:
        raise FileExistsError(f"{target} exists; pass overwrite=True to replace it, or another folder")
    if other := other_than_saved(target, _kind_of):
        raise FileExistsError(
            f"{target} has {other}, so it is not a divided graph and is not replaced; pass another folder"
        )


def _kind_of(name: str) -> str | None:
    return _OWNER if name == _OWNER else "graph" if re.fullmatch(r"part-\d+", name) else None


def _attributes(edges: EdgeSource, edge_ids: bool) -> dict[str, Tensor | None]:
    """Return what is stored per edge, in the order of the stream; None for the position itself."""
    attributes: Mapping[str, Tensor | None] = {}
    if isinstance(edges, Graph):
        attributes = {name: getattr(edges, name) for name in _EDGE_ATTRIBUTES if getattr(edges, name) is not None}
    ids = {"edge_ids": edges.edge_ids if isinstance(edges, Graph) else None} if edge_ids else {}
    return {**ids, **attributes}


def _arrays_of_part(
    edges: EdgeSource, rows: Rows, placed: PlacedEdges, attributes: Mapping[str, Tensor | None], part: int
) -> dict[str, Tensor | Iterator[Tensor] | None]:
    low, high = rows.part_start[part : part + 2].tolist()
    own = torch.where(rows.owner == part, rows.degree, 0)
    arrays: dict[str, Tensor | Iterator[Tensor] | None] = {"indptr": offsets(own), "indices": placed.sources[low:high]}
    for name, values in attributes.items():
        assert placed.positions is not None
        arrays[name] = _gathered(values, placed.positions[low:high])
    node_type = edges.node_type if isinstance(edges, Graph) else None
    return arrays | ({} if node_type is None else {"node_type": node_type})


def _gathered(values: Tensor | None, positions: Tensor) -> Iterator[Tensor]:
    """Yield the values at positions, chunk by chunk; the positions themselves without values."""
    for start in range(0, max(1, len(positions)), CHUNK_EDGES):
        chunk = positions[start : start + CHUNK_EDGES]
        yield chunk if values is None else values[chunk]
