"""`Drawn`: the rows that a sampler draws for some nodes."""

from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.block import FLOATS
from workbench.core.errors import ID_DTYPES, check_vector
from workbench.core.graph import Graph


class Drawn(NamedTuple):
    """The drawn in-edges of some nodes, as a CSR with one row per node.

    Args:
        indptr: int64 [n + 1].
        sources: int32 or int64 [num_drawn], raw-graph ids.
        positions: int64 [num_drawn], CSR positions in the graph; None: not needed.
        weight: floating point [num_drawn], weights of the drawn edges in the batch; None: unweighted.
    """

    indptr: Tensor
    sources: Tensor
    positions: Tensor | None = None
    weight: Tensor | None = None


def check_drawn(drawn: Drawn, num_rows: int) -> None:
    """Check what the kernels that relabel the sources trust; the block checks the rest.

    Args:
        drawn: the drawn rows.
        num_rows: number of nodes that they were drawn for.

    Raises:
        TypeError: a tensor of another dtype.
        ValueError: a tensor of another length.
    """
    check_vector("indptr of the drawn rows", drawn.indptr, num_rows + 1, (torch.int64,))
    check_vector("sources of the drawn rows", drawn.sources, None, ID_DTYPES)
    check_vector("positions of the drawn rows", drawn.positions, len(drawn.sources), (torch.int64,))
    check_vector("weight of the drawn rows", drawn.weight, len(drawn.sources), FLOATS)


def edge_values(graph: Graph, drawn: Drawn, edge_ids: bool) -> dict[str, Tensor]:
    """Look up what a block contains per edge.

    Args:
        graph: the graph that the rows were drawn from.
        drawn: the drawn rows.
        edge_ids: whether blocks contain raw-graph edge ids.

    Returns:
        The block's `edge_weight`, `edge_ids` and `edge_type`, those that there are.
    """
    values: dict[str, Tensor] = {} if drawn.weight is None else {"edge_weight": drawn.weight}
    if drawn.positions is None:
        return values
    if edge_ids:
        values["edge_ids"] = drawn.positions if graph.edge_ids is None else graph.edge_ids[drawn.positions]
    if graph.edge_type is not None:
        values["edge_type"] = graph.edge_type[drawn.positions]
    return values
