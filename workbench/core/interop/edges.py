"""What the exchange with every library needs: blocks from edges, edges in the caller's order."""

from collections.abc import Mapping

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.kernels.csr import group_rows


def refuse_halo(mb: MiniBatch) -> None:
    """Other libraries' blocks hold no rows of other processes.

    Raises:
        ValueError: a cooperative batch.
    """
    if mb.exchanges is not None:
        raise ValueError("a cooperative batch reads rows of other processes, which only its exchanges can fill in")


def block_from_edges(
    src: Tensor, dst: Tensor, num_src: int, num_dst: int, attributes: Mapping[str, Tensor | None]
) -> Block:
    """A block from its edges in any order; a destination's edges keep the given order.

    Args:
        src: int32 or int64 [num_edges], local ids.
        dst: int32 or int64 [num_edges], local ids.
        num_src: sources.
        num_dst: destinations.
        attributes: fields of `Block`, [num_edges], in the order of `src`.
    """
    csr = group_rows(dst.contiguous(), src.contiguous(), num_dst, num_src)
    order = slice(None) if csr.order is None else csr.order
    values = {name: None if value is None else value[order] for name, value in attributes.items()}
    return Block(csr.indptr, csr.indices, num_src, num_dst, **values)


def check_edge_ids(graph: Graph) -> None:
    """Other libraries number edges from 0 on.

    Raises:
        ValueError: edge ids that leave numbers out.
    """
    if graph.edge_ids is not None and graph.num_edges and int(graph.edge_ids.max()) != graph.num_edges - 1:
        raise ValueError(
            f"edge ids go up to {int(graph.edge_ids.max())} with {graph.num_edges} edges; "
            "drop them (dataclasses.replace(graph, edge_ids=None)) to number the edges anew"
        )


def in_callers_order(graph: Graph, values: Tensor | None) -> Tensor | None:
    """Values of the edges (last dimension) by edge id."""
    if values is None or graph.edge_ids is None:
        return values
    return torch.empty_like(values).index_copy_(-1, graph.edge_ids, values)
