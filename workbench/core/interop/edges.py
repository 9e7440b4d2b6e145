"""What the exchange with every library needs: blocks from edges, edges in the caller's order."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import ID_DTYPES, check_at_least, check_ids, check_tensors, check_type, check_vector
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

    Raises:
        TypeError: ids that are no integers.
        IndexError: an id out of range.
        ValueError: lengths that differ.
    """
    check_local("sources", src, num_src)
    check_local("destinations", dst, num_dst)
    check_vector("the destinations", dst, len(src), ID_DTYPES)
    for name, value in attributes.items():
        if value is None:
            continue
        check_tensors(**{name: value})
        if value.shape[:1] != src.shape:
            raise ValueError(f"{name} has shape {tuple(value.shape)} for {len(src)} edges; give one value per edge")
    csr = group_rows(dst.contiguous(), src.contiguous(), num_dst, num_src)
    order = slice(None) if csr.order is None else csr.order
    values = {name: None if value is None else value[order] for name, value in attributes.items()}
    return Block(csr.indptr, csr.indices, num_src, num_dst, **values)


def check_local(name: str, ids: Tensor, num_nodes: int) -> None:
    """Refuse positions that no node of a layer has: foreign structure must not lead a kernel out of its arrays.

    Raises:
        TypeError, IndexError: see `workbench.core.errors.check_ids`.
    """
    check_at_least(f"the number of {name}", num_nodes, 0)
    try:
        check_ids(name, ids, num_nodes)
    except IndexError as error:
        raise IndexError(f"{error}; edges join positions in the batch's list of nodes, not raw-graph ids") from None


def check_edge_index(edges: Any) -> Tensor:
    """Return the edges if they are a matrix of two rows.

    Raises:
        TypeError: no tensor.
        ValueError: another shape.
    """
    check_type("edge_index", edges, Tensor, "pass an int64 tensor [2, num_edges]")
    if edges.dim() != 2 or edges.shape[0] != 2:
        raise ValueError(f"edge_index has shape {tuple(edges.shape)}; it must be [2, num_edges]")
    return edges


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
