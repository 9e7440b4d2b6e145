"""The inverse of `Graph.edge_ids`: from an edge's id to its position in the CSR."""

from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.capacity import check_fits
from workbench.core.errors import INT64_MAX, check_ids

_TABLE_ENTRIES_PER_EDGE = 2  # as much memory as sorted ids and their positions
_SORT_BYTES = 4 * 8  # per edge: ids and positions, twice while they are being sorted


class PositionIndex(NamedTuple):
    """The positions of edges by id, in memory proportional to the number of edges, however large the ids are.

    Args:
        ids: int64 [num_edges], ascending; None: the ids have few gaps, and `positions` is a table indexed by id.
        positions: int64, the position of each id; in a table −1 for an id that no edge has.
    """

    ids: Tensor | None
    positions: Tensor


def index_positions(edge_ids: Tensor) -> PositionIndex:
    """Index the positions of edges by id: a table if the ids have few gaps, otherwise sorted ids.

    Args:
        edge_ids: int64 [num_edges], the id of the edge at each position.

    Raises:
        CapacityError: if the index does not fit into free memory (checked before allocating).
    """
    count = len(edge_ids)
    size = int(edge_ids.max()) + 1 if count else 0
    check_fits(f"an index of {count:,} edge ids", _SORT_BYTES * count, "sample without edge ids to exclude")
    if size > _TABLE_ENTRIES_PER_EDGE * count:
        return PositionIndex(*edge_ids.sort())
    positions = torch.full((max(1, size),), -1, dtype=torch.int64, device=edge_ids.device)
    positions[edge_ids] = torch.arange(count, device=edge_ids.device)
    return PositionIndex(None, positions)


def look_up(index: PositionIndex, edge_ids: Tensor) -> Tensor:
    """Return the positions of edges given by their ids.

    Args:
        index: the index of the graph's edge ids.
        edge_ids: int32 or int64 [any].

    Returns:
        int64 [any].

    Raises:
        IndexError: if no edge has one of the ids; the message names it.
    """
    wanted = check_ids("edge_ids", edge_ids, INT64_MAX)
    positions = find(index, wanted)
    if bool((positions < 0).any()):
        raise IndexError(
            f"edge_ids contains {int(wanted[positions < 0][0])}, which is not an edge of this graph; pass ids from "
            "its edge_ids"
        )
    return positions


def find(index: PositionIndex, edge_ids: Tensor) -> Tensor:
    """Return the positions of edges given by their ids, −1 for an id that no edge has.

    Args:
        index: the index of the graph's edge ids.
        edge_ids: int64 [any], non-negative.

    Returns:
        int64 [any].
    """
    if not len(index.positions):
        return torch.full_like(edge_ids, -1)
    slots = edge_ids if index.ids is None else torch.searchsorted(index.ids, edge_ids)
    slots = slots.clamp(max=len(index.positions) - 1)
    found = slots if index.ids is None else index.ids[slots]
    return torch.where(found == edge_ids, index.positions[slots], -1)
