"""Conversions between edge lists and blocks, shared by the DGL and PyG converters."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import ID_DTYPES, check_at_least, check_ids, check_tensors, check_type, check_vector
from workbench.core.graph import Graph
from workbench.kernels.csr import group_rows


def block_from_edges(
    src: Tensor, dst: Tensor, num_src: int, num_dst: int, attributes: Mapping[str, Tensor | None]
) -> Block:
    """Build a block from edges in any order; each destination's edges keep their order.

    Args:
        src: int32 or int64 [num_edges], local ids of sources.
        dst: int32 or int64 [num_edges], local ids of destinations.
        attributes: edge fields of `Block` by name, [num_edges] each, in the order of `src`; None is skipped.
    """
    check_local("sources", src, num_src)
    check_local("destinations", dst, num_dst)
    check_vector("the destinations", dst, len(src), ID_DTYPES)
    for name, value in attributes.items():
        if value is None:
            continue
        check_tensors(**{name: value})
        if value.shape[:1] != src.shape:
            raise ValueError(f"{name} has shape {tuple(value.shape)} for {len(src)} edges; pass one value per edge")
    csr = group_rows(dst.contiguous(), src.contiguous(), num_dst, num_src)
    order = slice(None) if csr.order is None else csr.order
    values = {name: None if value is None else value[order] for name, value in attributes.items()}
    return Block(csr.indptr, csr.indices, num_src, num_dst, **values)


def check_local(name: str, ids: Tensor, num_nodes: int) -> None:
    """Check local ids from another library, since kernels use them to index arrays without checks.

    Args:
        ids: int32 or int64 [num_edges], local ids.
        num_nodes: number of nodes of that kind in the layer.
    """
    check_at_least(f"the number of {name}", num_nodes, 0)
    try:
        check_ids(name, ids, num_nodes)
    except IndexError as error:
        raise IndexError(f"{error}; edges must use positions in the batch's node list, not raw-graph ids") from None


def check_edge_index(edges: Any) -> Tensor:
    """Return an `edge_index` after checking that it is a matrix of two rows."""
    check_type("edge_index", edges, Tensor, "pass an int64 tensor [2, num_edges]")
    if edges.dim() != 2 or edges.shape[0] != 2:
        raise ValueError(f"edge_index has shape {tuple(edges.shape)}; it must be [2, num_edges]")
    return edges


def check_edge_ids(graph: Graph) -> None:
    """Check that the edge ids have no gaps, since other libraries number edges from 0."""
    if graph.edge_ids is not None and graph.num_edges and int(graph.edge_ids.max()) != graph.num_edges - 1:
        raise ValueError(
            f"the largest edge id is {int(graph.edge_ids.max())}, but the graph has {graph.num_edges} edges; drop the "
            "ids (dataclasses.replace(graph, edge_ids=None)) to renumber the edges"
        )


def in_callers_order(graph: Graph, values: Tensor | None) -> Tensor | None:
    """Reorder values per edge (last dimension) from CSR order to the order of edge ids."""
    if values is None or graph.edge_ids is None:
        return values
    return torch.empty_like(values).index_copy_(-1, graph.edge_ids, values)


_PAIR_ATTRIBUTES = ("edge_label_index", "src_index")  # of LinkNeighborLoader: binary and triplet negatives

_REMEDY = (
    "its loss is one of pairs, so parts of its seeds would separate the ends of pairs. Split the pairs: pairs = "
    "workbench.links.EdgeBatch(batch.seeds, src, dst, …).split(part) for a MiniBatch `batch` of their ends, with "
    "positions of the ends, then batch.select([p.parent for p in pairs]); workbench.edge_batches samples such batches"
)


def refuse_pairs(batch: Any) -> None:
    """Refuse a batch of PyG's `LinkNeighborLoader` or of DGL's edge prediction.

    DGL's blocks alone do not show that they were sampled for pairs: they have no data that those of nodes lack. What
    its DataLoader yields does.
    """
    names = [name for name in _PAIR_ATTRIBUTES if getattr(batch, name, None) is not None]
    if names:
        raise ValueError(f"can't split a batch with {names[0]} (of PyG's LinkNeighborLoader) by its seeds: {_REMEDY}")
    if isinstance(batch, tuple | list) and len(batch) > 2 and isinstance(batch[-1], list) and _is_graph(batch[1]):
        raise ValueError(f"can't split a batch of DGL's edge prediction by its seeds: {_REMEDY}")


def _is_graph(value: Any) -> bool:
    return hasattr(value, "edata") and hasattr(value, "ndata")


ABSENT = {
    "edge_index": (
        "this batch has no edge_index: its nodes have a sample of their own in every layer, which edge_index can't "
        'express; call the layers with adjs, or convert with to_pyg(form="edge_index"), which keeps one sample per node'
    ),
    "adjs": (
        'this batch has no adjs: to_pyg(form="edge_index") kept one sample per node for all layers; call the layers '
        "with edge_index, or convert with to_pyg()"
    ),
}
"""Errors by the attribute that a batch does not have."""
