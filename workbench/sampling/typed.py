"""Draws with a fanout per edge type: every (node, type) group of edges is drawn as a row of its own."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.kernels.buffers import to_device
from workbench.kernels.hash import hash_index_torch
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.sampling.sampler import Candidates, Drawn, expanded, is_excluded_torch, row_offsets

_CHUNK = 1 << 20  # edges at a time, which bounds the memory for rows of high degree
_MIN_ROWS = 256  # per thread: a row costs its in-degree, not its fanout


def draw_by_type(
    graph: Graph, rows: Candidates, fanouts: Mapping[int, int], draw: Callable[[Candidates, Tensor], Drawn]
) -> Drawn:
    """Draw each row's edges type by type, in ascending order of the types.

    Args:
        fanouts: edges to draw by type; -1: all, 0: none.
        draw: `draw(groups, fanout)` draws the rows `groups`, given the fanout of each, int64.

    Raises:
        ValueError: the graph has no edge types, or the rows contain a type without a fanout.
    """
    kinds = sorted(fanouts)
    types, limits = to_device(torch.tensor([kinds, [fanouts[kind] for kind in kinds]]), rows.nodes.device)
    parts = []
    for part in _chunks(rows):
        groups = group_by_type(graph, part, types)
        drawn = draw(groups.candidates, limits[groups.columns])
        parts.append(Drawn(drawn.indptr[groups.indptr].diff(), *drawn[1:]))
    counts, sources, *positions = (torch.cat(t) for t in zip(*parts, strict=True) if t[0] is not None)
    return Drawn(row_offsets(counts), sources, *positions)


def _chunks(rows: Candidates) -> list[Candidates]:
    """Divide rows into ranges of about `_CHUNK` edges each."""
    if rows.num_edges is not None and rows.num_edges < _CHUNK:
        return [rows]
    return [_slice(rows, lo, hi) for lo, hi in pairwise(_chunk_bounds(rows.lengths))]


def _chunk_bounds(lengths: Tensor) -> list[int]:
    """Return the bounds of row ranges of about `_CHUNK` edges each."""
    ends = torch.cumsum(lengths, 0)
    chunks = int(ends[-1]) // _CHUNK if len(ends) else 0
    inner = torch.unique(torch.searchsorted(ends, torch.arange(1, chunks + 1, device=ends.device) * _CHUNK)).tolist()
    return [0, *(cut for cut in inner if 0 < cut < len(lengths)), len(lengths)]


def _slice(rows: Candidates, lo: int, hi: int) -> Candidates:
    starts, lengths, degrees = (t[lo:hi] for t in (rows.starts, rows.lengths, rows.degrees))
    return Candidates(rows.nodes[lo:hi], starts, lengths, degrees, rows.excluded, rows.first_excluded[lo:hi])


class Groups(NamedTuple):
    """The edges of n nodes grouped by (node, type), types ascending within a node; groups may be empty.

    Args:
        candidates: a row per group; within it, edges keep the order of the CSR.
        columns: int64 [num_groups], index of the type.
        indptr: int64 [n + 1], where the groups of every node begin.
    """

    candidates: Candidates
    columns: Tensor
    indptr: Tensor


class _Grouped(NamedTuple):
    indptr: Tensor
    columns: Tensor
    starts: Tensor
    counts: Tensor
    positions: Tensor


def group_by_type(graph: Graph, rows: Candidates, types: Tensor) -> Groups:
    """Group the candidates of each row, without excluded edges, by the edge types [num_types], ascending.

    Raises:
        ValueError: the graph has no edge types, or the rows contain another type.
    """
    if graph.edge_type is None:
        raise ValueError("the graph has no edge_type; pass one fanout per layer, not one per type")
    group = _group_compiled if rows.nodes.device.type == "cpu" else _group_torch
    indptr, columns, starts, counts, positions = group(graph.edge_type, rows, types)
    groups_per_row, none = indptr.diff(), positions[:0]
    row = torch.arange(len(groups_per_row), device=columns.device)
    row = row.repeat_interleave(groups_per_row, output_size=len(columns))
    group_ids, origins = hash_index_torch(rows.nodes[row], types[columns]), rows.starts[row]
    groups = Candidates(group_ids, starts, counts, counts, none, none, positions, origins, len(positions))
    return Groups(groups, columns, indptr)


def _refuse_type(kind: int, types: Tensor) -> None:
    known = ", ".join(map(str, types[:9].tolist())) + ", …" * (len(types) > 9)
    raise ValueError(
        f"edge_type contains {kind}, for which the layer has no fanout (only for {known}); add one, 0 to draw none"
    )


def _group_compiled(edge_type: Tensor, rows: Candidates, types: Tensor) -> _Grouped:
    first = rows.first_excluded if len(rows.excluded) else torch.zeros_like(rows.starts)
    indptr, edge_indptr = row_offsets(rows.degrees, len(types)), row_offsets(rows.degrees)
    columns, starts, counts = (torch.zeros(int(indptr[-1]), dtype=torch.int64) for _ in range(3))
    positions = torch.empty(int(edge_indptr[-1]), dtype=torch.int64)
    unknown = torch.full_like(rows.starts, -1)
    edges = tuple(t.numpy() for t in (rows.starts, rows.lengths, rows.excluded, first, edge_type))
    out = tuple(t.numpy() for t in (indptr, edge_indptr, columns, starts, counts, positions, unknown))
    parallel_rows(lambda lo, hi: _group_rows(lo, hi, edges, types.numpy(), out), len(first), _MIN_ROWS)
    if len(unknown) and (position := int(unknown.max())) >= 0:
        _refuse_type(int(edge_type[position]), types)
    return _Grouped(indptr, columns, starts, counts, positions)


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
def _group_rows(lo, hi, edges, types, out):
    """Group rows [lo, hi) by a counting sort; a row has space for min(its edges, number of types) groups."""
    starts, lengths, excluded, first_excluded, edge_type = edges
    indptr, edge_indptr, columns, group_starts, group_counts, positions, unknown = out
    cursor = np.zeros(len(types), np.int64)  # edges per type, then where the next one is written; zero between rows
    longest = 0
    for i in range(lo, hi):
        longest = max(longest, lengths[i])
    kept, kinds = np.empty(longest, np.int64), np.empty(longest, np.int64)
    column = 0
    for i in range(lo, hi):
        groups, count = columns[indptr[i] : indptr[i + 1]], 0
        skip, num_kept = first_excluded[i], 0
        for position in range(starts[i], starts[i] + lengths[i]):
            if skip < len(excluded) and excluded[skip] == position:
                skip += 1
                continue
            if types[column] != edge_type[position]:
                column = _find_type(types, edge_type[position])
                if column < 0:
                    unknown[i] = position
                    return
            if cursor[column] == 0:
                groups[count] = column
                count += 1
            cursor[column] += 1
            kept[num_kept], kinds[num_kept] = position, column
            num_kept += 1
        groups[:count].sort()
        slot = edge_indptr[i]
        for g in range(count):
            group_starts[indptr[i] + g], group_counts[indptr[i] + g] = slot, cursor[groups[g]]
            slot += cursor[groups[g]]
            cursor[groups[g]] = group_starts[indptr[i] + g]
        for e in range(num_kept):
            positions[cursor[kinds[e]]] = kept[e]
            cursor[kinds[e]] += 1
        for g in range(count):
            cursor[groups[g]] = 0


def _group_torch(edge_type: Tensor, rows: Candidates, types: Tensor) -> _Grouped:
    """Group as `_group_compiled` does, without empty groups, in plain torch for any device; its oracle.

    The host waits for the number of groups, and before if edges are excluded.
    """
    edges = expanded(rows)
    row, positions, offsets = edges.row, edges.positions, edges.offsets
    if len(rows.excluded):
        candidate = ~is_excluded_torch(positions, rows.excluded)
        kept, offsets = candidate.nonzero()[:, 0], row_offsets(edges.count(candidate))
        row, positions = row[kept], positions[kept]
    kinds = edge_type[positions].to(torch.int64)
    columns = torch.searchsorted(types, kinds).clamp(max=len(types) - 1)
    known = types[columns] == kinds
    keys, order = torch.sort(row * len(types) + columns, stable=True)
    is_first = torch.ones_like(known)
    torch.ne(keys[1:], keys[:-1], out=is_first[1:])
    num_groups, num_known = torch.stack([is_first.sum(), known.sum()]).tolist()
    if num_known < len(known):
        _refuse_type(int(kinds[~known][0]), types)
    starts = torch.nonzero_static(is_first, size=num_groups)[:, 0]
    indptr = row_offsets(is_first.view(torch.uint8))[offsets]
    counts = torch.cat([starts, offsets[-1:]]).diff()
    return _Grouped(indptr, keys[starts] % len(types), starts, counts, positions[order])
