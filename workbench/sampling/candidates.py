"""The in-edges that a sampler may draw: rows of the CSR without the excluded edges."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_id_vector, check_ids
from workbench.core.graph import Graph
from workbench.kernels.instructions import prefetch
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows

_PREFETCH_DISTANCE = 16  # rows
_MIN_ROWS = 32768  # per thread: fewer take less time than waking a thread
UNLIMITED = 2**62
_NONE = torch.empty(0, dtype=torch.int64)


class Candidates(NamedTuple):
    """The in-edges from which a sampler may draw, in rows: those of a node, or those of a node and an edge type.

    Args:
        nodes: int64 [n], raw-graph ids, or ids of the groups; they select the random variates of the rows.
        starts: int64 [n], the first CSR position of every row; with `positions`, where the row begins there.
        lengths: int64 [n], positions per row from `starts` on.
        degrees: int64 [n], candidates per row: `lengths` minus excluded edges.
        excluded: int64, the excluded CSR positions in ascending order.
        first_excluded: int64 [n], where the excluded positions of every row begin in `excluded`; empty without any.
        positions: int64, the candidates' CSR positions, grouped by row; None: each row is consecutive in the CSR.
        origins: int64 [n], the first CSR position of the row's node; None: `starts`.
    """

    nodes: Tensor
    starts: Tensor
    lengths: Tensor
    degrees: Tensor
    excluded: Tensor
    first_excluded: Tensor
    positions: Tensor | None = None
    origins: Tensor | None = None


@compiled
def _look_up_rows(lo, hi, nodes, indptr, starts, degrees, invalid):
    for i in range(lo, hi):
        prefetch(indptr, nodes[min(i + _PREFETCH_DISTANCE, hi - 1)])
        if not 0 <= nodes[i] < len(indptr) - 1:
            invalid[0] = True
            break
        starts[i] = indptr[nodes[i]]
        degrees[i] = indptr[nodes[i] + 1] - starts[i]


def _starts_and_degrees(graph: Graph, nodes: Tensor) -> tuple[Tensor, Tensor]:
    if nodes.device.type != "cpu":
        starts = graph.indptr[check_ids("nodes", nodes, graph.num_nodes)]
        return starts, graph.indptr[nodes + 1] - starts
    starts, degrees, invalid = torch.empty_like(nodes), torch.empty_like(nodes), np.zeros(1, np.bool_)
    arrays = [t.numpy() for t in (nodes, graph.indptr, starts, degrees)]
    parallel_rows(lambda lo, hi: _look_up_rows(lo, hi, *arrays, invalid), nodes.numel(), _MIN_ROWS)
    if invalid[0]:
        check_ids("nodes", nodes, graph.num_nodes)
    return starts, degrees


def candidates(graph: Graph, nodes: Tensor, excluded: Tensor | None) -> Candidates:
    """Look up the candidates of some nodes.

    Args:
        graph: the graph to sample from.
        nodes: int64 [n], raw-graph ids.
        excluded: int64, CSR positions in ascending order that must not be drawn; None: none.

    Returns:
        The rows' in-edges without the excluded ones.

    Raises:
        IndexError: a node is not in the graph.
    """
    starts, lengths = _starts_and_degrees(graph, nodes)
    if excluded is None:
        none = _NONE if nodes.device.type == "cpu" else _NONE.to(nodes.device)
        return Candidates(nodes, starts, lengths, lengths, none, none)
    if nodes.device.type != "cpu":
        first = torch.searchsorted(excluded, starts)
        removed = torch.searchsorted(excluded, starts + lengths) - first
        return Candidates(nodes, starts, lengths, lengths - removed, excluded, first)
    first, degrees = torch.empty_like(starts), torch.empty_like(starts)
    arrays = [t.numpy() for t in (excluded, starts, lengths, first, degrees)]
    parallel_rows(lambda lo, hi: _find_excluded(lo, hi, *arrays), len(nodes))
    return Candidates(nodes, starts, lengths, degrees, excluded, first)


@compiled
def _find_excluded(lo, hi, excluded, starts, lengths, first, degrees):
    """Find where each row begins in `excluded` by binary search, and count its candidates."""
    for i in range(lo, hi):
        low, count = 0, len(excluded)
        while count > 0:  # without an unpredictable branch
            half = count >> 1
            below = excluded[low + half] < starts[i]
            low = low + half + 1 if below else low
            count = count - half - 1 if below else half
        first[i], end = low, starts[i] + lengths[i]
        while low < len(excluded) and excluded[low] < end:
            low += 1
        degrees[i] = lengths[i] - (low - first[i])


@compiled
def skip_excluded(rank, start, excluded, first):
    """Convert a rank among a row's edges that are not excluded to an offset; `first` is its first excluded edge."""
    low, high = first, len(excluded)
    while low < high:
        middle = (low + high) // 2
        if excluded[middle] - start - (middle - first) <= rank:
            low = middle + 1
        else:
            high = middle
    return rank + low - first


def skip_excluded_torch(ranks: Tensor, starts: Tensor, excluded: Tensor, first: Tensor) -> Tensor:
    """Convert ranks to CSR positions: advance by the number of excluded edges passed, until that is stable."""
    positions = starts + ranks
    while True:
        moved = starts + ranks + torch.searchsorted(excluded, positions, right=True) - first
        if torch.equal(moved, positions):
            return positions
        positions = moved


def expand_rows(rows: Candidates) -> tuple[Tensor, Tensor]:
    """Return the row and the CSR position of every edge of the rows, excluded ones included, in plain torch.

    Args:
        rows: the candidates.

    Returns:
        int64 [number of edges], twice.
    """
    row = torch.repeat_interleave(torch.arange(len(rows.nodes), device=rows.nodes.device), rows.lengths)
    slot = rows.starts[row] + torch.arange(len(row), device=row.device) - row_offsets(rows.lengths)[row]
    return row, slot if rows.positions is None else rows.positions[slot]


def excluded_positions(graph: Graph, edge_ids: Tensor | None) -> Tensor | None:
    """Convert edge ids to the CSR positions that must not be drawn.

    Args:
        graph: the graph to sample from.
        edge_ids: int64 or int32, raw-graph edge ids; None: none.

    Returns:
        int64, ascending, each position once; None without edge ids.

    Raises:
        TypeError: ids of another dtype.
        IndexError: an id that is not an edge of the graph.
    """
    if edge_ids is None:
        return None
    check_id_vector("exclude_edges", edge_ids)
    ids = edge_ids.to(graph.indices.device, torch.int64)
    if graph.edge_ids is not None:
        return _ascending(graph.edge_positions(ids))
    positions = _ascending(ids)
    check_ids("edge_ids", positions[:: max(1, positions.numel() - 1)], graph.num_edges)  # the smallest and the largest
    return positions


def _ascending(positions: Tensor) -> Tensor:
    """Sort and drop duplicates; NumPy's sort is several times as fast as torch's, and wakes no OpenMP threads."""
    if positions.device.type != "cpu":
        return torch.unique(positions)
    out = torch.empty_like(positions)
    values = out.numpy()
    values[:] = positions.numpy()
    values.sort()
    return torch.unique_consecutive(out) if (values[1:] == values[:-1]).any() else out


@compiled
def _cumulate(counts, limit, indptr):
    indptr[0] = 0
    for i in range(len(counts)):
        indptr[i + 1] = indptr[i] + min(counts[i], limit)


def row_offsets(counts: Tensor, limit: int = UNLIMITED) -> Tensor:
    """Compute CSR offsets from row lengths.

    Args:
        counts: int64 [n].
        limit: maximum length of a row; longer ones are cut.

    Returns:
        int64 [n + 1], from 0.
    """
    indptr = torch.empty(counts.numel() + 1, dtype=torch.int64, device=counts.device)
    if counts.device.type == "cpu":
        _cumulate(counts.numpy(), limit, indptr.numpy())
    else:
        indptr[0] = 0
        torch.cumsum(counts.clamp(max=limit), 0, out=indptr[1:])
    return indptr


def drawn_offsets(available: Tensor, fanout: int | Tensor, replace: bool) -> Tensor:
    """Compute the CSR offsets of the drawn rows.

    Args:
        available: int64 [n], edges that may be drawn per row.
        fanout: edges to draw, for all rows or int64 [n]; -1: all.
        replace: draw `fanout` edges with replacement from every row that has any.

    Returns:
        int64 [n + 1], from 0.
    """
    if isinstance(fanout, int) and (fanout < 0 or not replace):
        return row_offsets(available, fanout if fanout >= 0 else UNLIMITED)
    limits = torch.as_tensor(fanout, device=available.device)
    counts = torch.where(available > 0, limits, 0) if replace else torch.minimum(available, limits)
    return row_offsets(torch.where(limits < 0, available, counts))


def draws_with_replacement(num_rows: int, fanout: int | Tensor, replace: bool) -> Tensor:
    """Return which rows are drawn with replacement, bool [num_rows]: none whose fanout is -1.

    Args:
        num_rows: number of rows.
        fanout: edges to draw, for all rows or int64 [num_rows]; -1: all.
        replace: draw with replacement.
    """
    if not replace:
        return torch.zeros(num_rows, dtype=torch.bool)
    limits = torch.as_tensor(fanout)
    return ((limits >= 0) & replace).expand(num_rows).contiguous()
