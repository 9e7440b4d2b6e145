"""A graph divided by owner: each part's folder contains the in-edges of its own nodes, and no others."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from workbench import files
from workbench.core.array_store import HEADER, open_arrays, save_arrays, saved_digest
from workbench.core.edge_stream import CHUNK_EDGES, EdgeSource, check_repeatable, count_nodes
from workbench.core.errors import check_at_least, check_ids
from workbench.core.graph import Graph
from workbench.kernels.csr import offsets
from workbench.partition.graph.placed_edges import PlacedEdges, Progress, Rows, place_edges

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
    owner = check_ids("owner", owner.cpu(), max(1, num_nodes)).to(torch.int32)
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

    Args:
        folder: the folder given to `split_graph`.

    Raises:
        FileNotFoundError: if the folder is missing.
        CorruptFileError: if the file of the owners is truncated or not valid.
    """
    arrays = open_arrays(Path(folder) / _OWNER, kind=_OWNER)
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
    if not (target / _OWNER / HEADER).is_file():
        raise FileExistsError(f"{target} is not a divided graph and is not replaced; pass another folder")


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
