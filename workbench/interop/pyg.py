"""Conversions to and from PyTorch Geometric (PyG): batches and graphs in `edge_index` form."""

from collections.abc import Sequence
from itertools import pairwise
from types import NoneType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import INT64_MAX, check_at_least, check_choice, check_ids, check_type
from workbench.core.graph import Graph
from workbench.interop.edge_lists import (
    block_from_edges,
    check_edge_ids,
    check_edge_index,
    in_callers_order,
)
from workbench.interop.pyg_batch import PygBatch
from workbench.interop.pyg_forms import has_one_sample_per_node, with_one_sample_per_node
from workbench.interop.pyg_hops import blocks_of_hops, why_without_hops

PYG_FORMS = ("adjs", "edge_index")


def _edge_index(block: Block) -> Tensor:
    return torch.stack([block.indices.to(torch.int64), block.destinations.to(torch.int64)])


def blocks_to_pyg(node_ids: Tensor, blocks: Sequence[Block], form: str = "adjs") -> Any:
    """Convert blocks to a batch in PyG's form.

    Args:
        node_ids: int64 [num_inputs], raw-graph ids.
        blocks: input layer first, at least one.
        form: "adjs": the same batch in `adjs`, and in `edge_index` too if every node has one sample for all layers.
            "edge_index": every node keeps the sample of the layer that reached it first, so that `edge_index` describes
            the batch, without `adjs`.

    Returns:
        A `torch_geometric.data.Data` with the attributes of `PygBatch`, or a `PygBatch` if PyG is not installed.

    Raises:
        ValueError: if there are no blocks, or `form` is unknown.
    """
    check_choice("form", form, PYG_FORMS)
    if not blocks:
        raise ValueError("the batch has no blocks; sample at least one layer")
    is_hops = has_one_sample_per_node(blocks)
    attributes = layers_to_pyg(blocks) if form == "adjs" else {"adjs": None}
    if form == "edge_index" and not is_hops:
        node_ids, blocks = with_one_sample_per_node(node_ids, blocks)
    attributes |= _hops(blocks) if is_hops or form == "edge_index" else {"edge_index": None}
    new_nodes = [block.num_src - block.num_dst for block in blocks[::-1]]
    seeds = blocks[-1].num_dst
    batch = PygBatch(node_ids, seeds, num_sampled_nodes=[seeds, *new_nodes], **attributes)
    try:
        from workbench.interop.pyg_data import SampledData
    except ImportError:
        return batch
    return SampledData(**vars(batch), num_nodes=len(node_ids))


def layers_to_pyg(blocks: Sequence[Block]) -> dict[str, Any]:
    """Convert blocks to `adjs`, `adj_weights` and `adj_types`: the edges of each layer.

    Args:
        blocks: input layer first.
    """
    return {
        "adjs": [(_edge_index(block), block.edge_ids, (block.num_src, block.num_dst)) for block in blocks],
        "adj_weights": [block.edge_weight for block in blocks],
        "adj_types": [block.edge_type for block in blocks],
    }


def _hops(blocks: Sequence[Block]) -> dict[str, Any]:
    """The edges of each hop, of blocks with one sample per node: all are in the first block."""
    whole = blocks[0]
    ends = [int(whole.indptr[block.num_dst]) for block in blocks[::-1]]
    return {
        "edge_index": _edge_index(whole),
        "num_sampled_edges": [end - start for start, end in pairwise([0, *ends])],
        "e_id": whole.edge_ids,
        "edge_weight": whole.edge_weight,
        "edge_type": whole.edge_type,
    }


def _is_row(value: Any, length: int) -> bool:
    return isinstance(value, tuple | list) and len(value) == length


def _from_layers(batch: Any) -> list[Block]:
    for name in ("adjs", "adj_weights", "adj_types"):
        value = getattr(batch, name, None)
        check_type(name, value, (list, tuple, NoneType), "pass a list with one entry per layer, as to_pyg does")
    for layer, adj in enumerate(batch.adjs):
        if not (_is_row(adj, 3) and _is_row(adj[2], 2)):
            raise ValueError(f"adjs[{layer}] is {adj!r:.99}; pass (edge_index, e_id, (num_src, num_dst)) per layer")
        for count in adj[2]:
            check_at_least(f"a size of adjs[{layer}]", count, 0, most=len(batch.n_id))
    none = [None] * len(batch.adjs)
    weights, types = getattr(batch, "adj_weights", None) or none, getattr(batch, "adj_types", None) or none
    if not len(batch.adjs) == len(weights) == len(types):
        raise ValueError(
            f"the batch has {len(batch.adjs)} adjs, {len(weights)} adj_weights and {len(types)} adj_types; pass one of "
            "each per layer"
        )
    blocks = []
    for (edges, e_id, (num_src, num_dst)), weight, edge_type in zip(batch.adjs, weights, types, strict=True):
        attributes = {"edge_ids": e_id, "edge_weight": weight, "edge_type": edge_type}
        src, dst = check_edge_index(edges)
        blocks.append(block_from_edges(src, dst, num_src, num_dst, attributes))
    return blocks


def blocks_from_pyg(batch: Any) -> tuple[Tensor, tuple[Block, ...]]:
    """Convert a batch of PyG to node ids and blocks: the inverse of `blocks_to_pyg`.

    Args:
        batch: result of `blocks_to_pyg`, or a batch of PyG's `NeighborLoader`: an object with `n_id` and either `adjs`
            or `edge_index` and `num_sampled_nodes`. Blocks of a `NeighborLoader` are views of one CSR, as in a DENSE
            sample.

    Returns:
        Raw-graph node ids, int64 [num_inputs], and the blocks.

    Raises:
        TypeError: if ids or edges are not integer tensors.
        ValueError: if an attribute is missing, or attributes do not match.
        IndexError: if an edge does not connect positions in `n_id`.
    """
    if getattr(batch, "n_id", None) is None:
        raise ValueError("the batch has no n_id; pass a batch of PyG's NeighborLoader, or the result of to_pyg")
    node_ids = check_ids("n_id", batch.n_id, INT64_MAX)
    if getattr(batch, "adjs", None) is not None:
        _check_same_attributes(batch)
        blocks = _from_layers(batch)
    elif getattr(batch, "num_sampled_nodes", None) is not None:
        blocks = blocks_of_hops(batch)
    else:
        raise ValueError(f"the batch has neither adjs nor num_sampled_nodes; {why_without_hops(batch)}")
    return node_ids, tuple(blocks)


def _check_same_attributes(batch: Any) -> None:
    """Refuse a batch of both forms, of which only one was given edge weights or types."""
    for hops, layers in (("edge_weight", "adj_weights"), ("edge_type", "adj_types")):
        per_layer = getattr(batch, layers, None) or [None]
        if getattr(batch, hops, None) is not None and any(value is None for value in per_layer):
            raise ValueError(
                f"the batch has {hops} for edge_index, but no {layers} for adjs; set both, or convert with "
                'to_pyg(form="edge_index"), which has no adjs'
            )


def is_disjoint(batch: Any) -> bool:
    """Return whether a batch of PyG is disjoint: it contains one copy of a node per seed that reaches it."""
    return getattr(batch, "batch", None) is not None


def graph_to_pyg(graph: Graph) -> dict[str, Any]:
    """Convert a graph to the arguments of PyG's `Data` (`Data(**graph_to_pyg(graph))`), with edges ordered by edge id.

    Args:
        graph: a graph whose edge ids, if it has any, are 0 to num_edges − 1.

    Raises:
        ValueError: if the edge ids have gaps.
    """
    check_edge_ids(graph)
    nodes = torch.arange(graph.num_nodes, device=graph.device)
    destinations = torch.repeat_interleave(nodes, graph.in_degrees(), output_size=graph.num_edges)
    fields = {
        "num_nodes": graph.num_nodes,
        "edge_index": in_callers_order(graph, torch.stack([graph.indices.to(torch.int64), destinations])),
        "edge_weight": in_callers_order(graph, graph.edge_weight),
        "edge_type": in_callers_order(graph, graph.edge_type),
        "node_type": graph.node_type,
    }
    return {name: value for name, value in fields.items() if value is not None}


def graph_to_data(graph: Graph) -> Any:
    """Convert a graph to a PyG `Data`, or without PyG to an object with the same attributes.

    Args:
        graph: a graph whose edge ids, if it has any, are 0 to num_edges − 1.
    """
    fields = graph_to_pyg(graph)
    try:
        from torch_geometric.data import Data
    except ImportError:
        return SimpleNamespace(**fields)
    return Data(**fields)


def graph_from_pyg(data: Any) -> Graph:
    """Convert a homogeneous PyG `Data`.

    Args:
        data: object with `edge_index` and optionally `num_nodes`, `edge_weight`, `edge_type` and `node_type`.

    Raises:
        TypeError: if `edge_index` is not an integer tensor.
        ValueError: if `edge_index` is missing or does not have two rows.
        IndexError: if an id is out of range.
    """
    if getattr(data, "edge_index", None) is None:
        transposed = " before ToSparseTensor, which replaces it by adj_t" * (getattr(data, "adj_t", None) is not None)
        raise ValueError(
            f"the {type(data).__name__} has no edge_index; pass a PyG Data of one node and edge type{transposed}"
        )
    src, dst = check_edge_index(data.edge_index)
    return Graph.from_edges(
        src,
        dst,
        num_nodes=getattr(data, "num_nodes", None),
        edge_weight=getattr(data, "edge_weight", None),
        edge_type=getattr(data, "edge_type", None),
        node_type=getattr(data, "node_type", None),
    )
