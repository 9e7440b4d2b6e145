"""The inverse of `Graph.edge_ids`: from an edge's id to its position in the CSR."""

import torch
from torch import Tensor

from workbench.core.capacity import check_fits
from workbench.core.errors import check_ids


def position_table(edge_ids: Tensor) -> Tensor:
    """Return the position of each edge id.

    Args:
        edge_ids: int64 [num_edges], the id of the edge at each position.

    Returns:
        int64 [largest id + 1], −1 for an id that no edge has.

    Raises:
        CapacityError: if the table does not fit into free memory (checked before allocating).
    """
    if not edge_ids.numel():
        return torch.empty(0, dtype=torch.int64, device=edge_ids.device)
    size = int(edge_ids.max()) + 1
    check_fits(f"a table of positions for edge ids up to {size - 1:,}", 8 * size, "number the edges without gaps")
    positions = torch.full((size,), -1, dtype=torch.int64, device=edge_ids.device)
    positions[edge_ids] = torch.arange(len(edge_ids), device=edge_ids.device)
    return positions


def look_up(table: Tensor, edge_ids: Tensor) -> Tensor:
    """Return the positions of edges given by their ids.

    Args:
        table: int64 [largest id + 1], from `position_table`.
        edge_ids: int32 or int64 [any].

    Returns:
        int64 [any].

    Raises:
        IndexError: if no edge has one of the ids; the message names it.
    """
    positions = table[check_ids("edge_ids", edge_ids, table.shape[0])]
    if bool((positions < 0).any()):
        raise IndexError(
            f"edge_ids contains {int(edge_ids[positions < 0][0])}, which is not an edge of this graph; pass ids from "
            "its edge_ids"
        )
    return positions
