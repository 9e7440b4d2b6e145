"""Draws with a fanout per edge type: every (node, type) group of edges is drawn as a row of its own."""

from collections.abc import Callable, Mapping
from itertools import pairwise

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.kernels.hash import hash_index_torch
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.sampling.candidates import Candidates, expand_rows, row_offsets
from workbench.sampling.sampler import Drawn

_CHUNK = 1 << 22  # edges and groups at a time, which bounds the memory for rows of high degree
_MIN_ROWS = 256  # per thread: a row costs its in-degree, not its fanout


def draw_by_type(
    graph: Graph, rows: Candidates, fanouts: Mapping[int, int], draw: Callable[[Candidates, Tensor], Drawn]
) -> Drawn:
    """Draw each row's edges type by type, in ascending order of the types.

    Args:
        graph: a graph with edge types, in any order within a row.
        rows: the candidates of some nodes.
        fanouts: edges to draw by type; -1: all, 0: none.
        draw: `draw(groups, fanout)` draws the rows `groups`, given the fanout of each, int64.

    Returns:
        The drawn rows, one per node.

    Raises:
        ValueError: the graph has no edge types, or the rows contain a type without a fanout.
    """
    types = torch.tensor(sorted(fanouts), device=rows.nodes.device)
    limits = torch.tensor([fanouts[kind] for kind in types.tolist()], device=types.device)
    bounds = _chunk_bounds(rows.lengths + len(types))
    parts = []
    for lo, hi in pairwise(bounds):
        drawn = draw(group_by_type(graph, _slice(rows, lo, hi), types), limits.repeat(hi - lo))
        parts.append(Drawn(drawn.indptr[:: len(types)].diff(), *drawn[1:]))
    counts, sources, *positions = (torch.cat(t) for t in zip(*parts, strict=True) if t[0] is not None)
    return Drawn(row_offsets(counts), sources, *positions)


def _chunk_bounds(work: Tensor) -> list[int]:
    """Return the bounds of row ranges of about `_CHUNK` work each."""
    ends = torch.cumsum(work, 0)
    chunks = int(ends[-1]) // _CHUNK if len(ends) else 0
    inner = torch.unique(torch.searchsorted(ends, torch.arange(1, chunks + 1, device=ends.device) * _CHUNK)).tolist()
    return [0, *(cut for cut in inner if 0 < cut < len(work)), len(work)]


def _slice(rows: Candidates, lo: int, hi: int) -> Candidates:
    starts, lengths, degrees = (t[lo:hi] for t in (rows.starts, rows.lengths, rows.degrees))
    return Candidates(rows.nodes[lo:hi], starts, lengths, degrees, rows.excluded, rows.first_excluded[lo:hi])


def group_by_type(graph: Graph, rows: Candidates, types: Tensor) -> Candidates:
    """Group the candidates of each row by edge type; a group keeps the order of the CSR.

    Args:
        graph: a graph with edge types.
        rows: the candidates of n nodes.
        types: int64 [num_types], ascending.

    Returns:
        The groups, num_types per row, without the excluded edges.

    Raises:
        ValueError: the graph has no edge types, or the rows contain another type.
    """
    if graph.edge_type is None:
        raise ValueError("the graph has no edge_type; pass one fanout per layer, not one per type")
    group = _group_compiled if rows.nodes.device.type == "cpu" else _group_torch
    counts, positions = group(graph.edge_type, rows, types)
    group_ids = hash_index_torch(rows.nodes[:, None], types).flatten()
    origins = rows.starts.repeat_interleave(len(types))
    none = positions[:0]
    return Candidates(group_ids, row_offsets(counts)[:-1], counts, counts, none, none, positions, origins)


def _refuse_type(kind: int, types: Tensor) -> None:
    known = ", ".join(map(str, types[:9].tolist())) + ", …" * (len(types) > 9)
    raise ValueError(
        f"edge_type contains {kind}, for which the layer has no fanout (only for {known}); add one, 0 to draw none"
    )


def _group_compiled(edge_type: Tensor, rows: Candidates, types: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of edges per group, and the CSR positions by group."""
    num_rows = len(rows.nodes)
    first = rows.first_excluded if len(rows.excluded) else torch.zeros_like(rows.starts)
    inputs = [t.numpy() for t in (rows.starts, rows.lengths, rows.excluded, first, edge_type, types)]
    counts = torch.zeros(num_rows, len(types), dtype=torch.int64)
    parallel_rows(lambda lo, hi: _count_types(lo, hi, *inputs, counts.numpy()), num_rows, _MIN_ROWS)
    if num_rows and (unknown := int(counts[:, 0].min())) < 0:
        _refuse_type(int(edge_type[-1 - unknown]), types)
    ends = row_offsets(counts.flatten())
    positions, cursor = torch.empty(int(ends[-1]), dtype=torch.int64), ends[:-1].view_as(counts).numpy()
    parallel_rows(lambda lo, hi: _place(lo, hi, *inputs, cursor, positions.numpy()), num_rows, _MIN_ROWS)
    return counts.flatten(), positions


@compiled
def _find_type(types, kind):
    """Return the index of `kind` in the ascending types, or -1."""
    low, high = 0, len(types)
    while low < high:
        middle = (low + high) // 2
        if types[middle] < kind:
            low = middle + 1
        else:
            high = middle
    return low if low < len(types) and types[low] == kind else -1


@compiled
def _count_types(lo, hi, starts, lengths, excluded, first_excluded, edge_type, types, counts):
    """Count the candidates of rows [lo, hi) by type; -1 - position in the first column marks an unknown type."""
    column = 0
    for i in range(lo, hi):
        skip = first_excluded[i]
        for position in range(starts[i], starts[i] + lengths[i]):
            if skip < len(excluded) and excluded[skip] == position:
                skip += 1
                continue
            if types[column] != edge_type[position]:
                column = _find_type(types, edge_type[position])
                if column < 0:
                    counts[i, 0] = -1 - position
                    column = 0
                    break
            counts[i, column] += 1


@compiled
def _place(lo, hi, starts, lengths, excluded, first_excluded, edge_type, types, cursor, positions):
    """Write the candidates of rows [lo, hi) to the slots of their groups."""
    column = 0
    for i in range(lo, hi):
        skip = first_excluded[i]
        for position in range(starts[i], starts[i] + lengths[i]):
            if skip < len(excluded) and excluded[skip] == position:
                skip += 1
                continue
            if types[column] != edge_type[position]:
                column = _find_type(types, edge_type[position])
            positions[cursor[i, column]] = position
            cursor[i, column] += 1


def _group_torch(edge_type: Tensor, rows: Candidates, types: Tensor) -> tuple[Tensor, Tensor]:
    """Group as `_group_compiled` does, in plain torch for any device; the oracle of the compiled kernels."""
    row, positions = expand_rows(rows)
    kept = ~torch.isin(positions, rows.excluded)
    row, positions = row[kept], positions[kept]
    kinds = edge_type[positions].to(torch.int64)
    columns = torch.searchsorted(types, kinds).clamp(max=len(types) - 1)
    unknown = types[columns] != kinds
    if bool(unknown.any()):
        _refuse_type(int(kinds[unknown][0]), types)
    groups = row * len(types) + columns
    counts = torch.bincount(groups, minlength=len(rows.nodes) * len(types))
    return counts, positions[torch.argsort(groups, stable=True)]
