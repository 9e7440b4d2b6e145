"""Conversions to and from PyTorch Geometric (PyG): batches and graphs in `edge_index` form."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from types import NoneType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import INT64_MAX, check_at_least, check_choice, check_ids, check_type
from workbench.core.graph import Graph
from workbench.core.split import first_rows, select_blocks
from workbench.interop.edge_lists import ABSENT, block_from_edges, check_edge_ids, check_edge_index, in_callers_order
from workbench.kernels.csr import offsets

PYG_FORMS = ("adjs", "edge_index")


def _edge_index(block: Block) -> Tensor:
    return torch.stack([block.indices.to(torch.int64), block.destinations.to(torch.int64)])


def blocks_to_pyg(node_ids: Tensor, blocks: Sequence[Block], form: str = "adjs") -> Any:
    """Convert blocks to a batch in PyG's form.

    Args:
        blocks: input layer first, at least one.
        form: "adjs": the same batch in `adjs`, and in `edge_index` too if every node has one sample for all layers.
            "edge_index": every node keeps the sample of the layer that reached it first, so that `edge_index` describes
            the batch, without `adjs`.

    Returns:
        A `torch_geometric.data.Data` with the attributes of `PygBatch`, or a `PygBatch` if PyG is not installed.
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
    """Convert blocks to `adjs`, `adj_weights` and `adj_types`: the edges of each layer."""
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
    """Convert a graph to the arguments of PyG's `Data` (`Data(**…)`), with edges ordered by edge id."""
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
    """Convert a graph to a PyG `Data`, or without PyG to an object with the same attributes: `Graph.to_pyg`."""
    fields = graph_to_pyg(graph)
    try:
        from torch_geometric.data import Data
    except ImportError:
        return SimpleNamespace(**fields)
    return Data(**fields)


def graph_from_pyg(data: Any) -> Graph:
    """Convert a homogeneous PyG `Data`: `Graph.from_pyg`."""
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


def has_one_sample_per_node(blocks: Sequence[Block]) -> bool:
    """Return whether the rows of every block are the first rows of the block before it.

    True for full neighbourhoods, DENSE samples and batches of `NeighborLoader`, and for their micro-batches.
    """
    return all(_is_prefix(outer, inner) for inner, outer in pairwise(blocks))


def _is_prefix(outer: Block, inner: Block) -> bool:
    pairs = ((t, inner._tensors()[name]) for name, t in outer._tensors().items())
    return all(
        (a is None) == (b is None)
        and (a is None or b is None or a.data_ptr() == b.data_ptr() or torch.equal(a, b[: len(a)]))
        for a, b in pairs
    )


def with_one_sample_per_node(node_ids: Tensor, blocks: Sequence[Block]) -> tuple[Tensor, tuple[Block, ...]]:
    """Let every node keep the sample of the layer that reached it first, in all layers.

    Args:
        blocks: input layer first, at least one.

    Returns:
        The ids of the nodes that are still reached, and the blocks, row prefixes of one CSR.
    """
    whole = _merged(blocks)
    merged = tuple(first_rows(whole, block.num_src, block.num_dst) for block in blocks)
    (piece,) = select_blocks(node_ids, merged, [torch.arange(merged[-1].num_dst, device=node_ids.device)])
    return piece.node_ids, tuple(piece.blocks)


def _merged(blocks: Sequence[Block]) -> Block:
    """Concatenate the rows of each layer that the later layers do not have."""
    outermost_first = blocks[::-1]
    new_rows = [0, *(block.num_dst for block in outermost_first[:-1])]
    starts = [int(block.indptr[row]) for block, row in zip(outermost_first, new_rows, strict=True)]
    degrees = [block.in_degrees()[row:] for block, row in zip(outermost_first, new_rows, strict=True)]
    fields = {}
    for name in ("indices", "edge_ids", "edge_weight", "edge_type"):
        values = [getattr(block, name) for block in outermost_first]
        if all(value is not None for value in values):
            fields[name] = torch.cat([value[start:] for value, start in zip(values, starts, strict=True)])
    indptr = offsets(torch.cat(degrees))
    return replace(blocks[0], **{"edge_ids": None, "edge_weight": None, "edge_type": None} | fields, indptr=indptr)


_REMEDY = "pass the batch as NeighborLoader returned it"


def _counts(name: str, values: Any) -> list[int]:
    """Convert counts, which PyG stores as a list of integers or tensors, or as one tensor."""
    try:
        counts = [operator.index(value) for value in values]
    except TypeError as error:
        raise TypeError(f"{name} is {values!r}, not whole numbers; {_REMEDY}") from error
    for count in counts:
        check_at_least(f"a number of {name}", count, 0)
    return counts


def _num_reached(batch: Any) -> list[int]:
    """Return the number of nodes reached after each hop, after checking it against `n_id` and `batch_size`."""
    counts = _counts("num_sampled_nodes", batch.num_sampled_nodes)
    if len(counts) < 2:
        raise ValueError(f"num_sampled_nodes is {counts}; it must count the seeds and the new nodes of each hop")
    if sum(counts) != len(batch.n_id):
        raise ValueError(
            f"num_sampled_nodes {counts} add up to {sum(counts)}, but n_id has {len(batch.n_id)} nodes; {_REMEDY}"
        )
    if (seeds := getattr(batch, "batch_size", None)) is None:
        return list(accumulate(counts))
    if _counts("batch_size", [seeds]) != counts[:1]:
        raise ValueError(f"batch_size is {seeds}, but num_sampled_nodes begins with {counts[0]} seeds; {_REMEDY}")
    return list(accumulate(counts))


def _check_hops(batch: Any, whole: Block, reached: list[int]) -> None:
    """Check that the edges of each hop are exactly the edges into the nodes that were new in the previous hop."""
    if getattr(batch, "num_sampled_edges", None) is None:
        return
    counts = _counts("num_sampled_edges", batch.num_sampled_edges)
    ends = [int(whole.indptr[count]) for count in reached[:-1]]
    if list(accumulate(counts)) != ends:
        actual = [end - start for start, end in pairwise([0, *ends])]
        raise ValueError(
            f"num_sampled_edges are {counts}, but edge_index has {actual} edges into the nodes of each hop; {_REMEDY}"
        )


def why_without_hops(batch: Any) -> str:
    """Say why a batch has no numbers of nodes per hop, without which layers can't be told apart, and the remedy."""
    edges = getattr(batch, "edge_index", None)
    if isinstance(edges, Tensor) and edges.dim() == 2 and edges.shape[1] and _is_symmetric(edges):
        return (
            'its edges go both ways, as those of NeighborLoader(subgraph_type="bidirectional") or "induced" do, which '
            'can\'t be split into layers: pass subgraph_type="directional"'
        )
    return (
        "NeighborLoader counts the nodes of each hop with pyg-lib, not with torch-sparse, and for "
        'subgraph_type="directional" alone: install pyg-lib, or sample with wb.NeighborSampler and use to_pyg'
    )


def _is_symmetric(edges: Tensor) -> bool:
    """Return whether every edge has its reverse, and not all are self loops."""
    both = torch.unique(edges, dim=1), torch.unique(edges.flip(0), dim=1)
    return torch.equal(*both) and bool((edges[0] != edges[1]).any())


def blocks_of_hops(batch: Any) -> list[Block]:
    """Convert the hops to one block per layer; the blocks are row prefixes of one CSR.

    Args:
        batch: object with `n_id`, `edge_index` and `num_sampled_nodes`, and optionally `num_sampled_edges` and
            `batch_size`, which are checked.
    """
    reached = _num_reached(batch)
    pyg_names = {"edge_ids": "e_id", "edge_weight": "edge_weight", "edge_type": "edge_type"}
    attributes = {name: getattr(batch, pyg_name, None) for name, pyg_name in pyg_names.items()}
    src, dst = check_edge_index(batch.edge_index)
    if dst.numel() and reached[-2] <= int(dst.max()) < reached[-1]:
        raise ValueError(
            f"edge_index has an edge into node {int(dst.max())}, which is new in the last hop (from node {reached[-2]} "
            'on); batches of subgraph_type="bidirectional" or "induced" can\'t be split into layers: use "directional"'
        )
    whole = block_from_edges(src, dst, reached[-1], reached[-2], attributes)
    _check_hops(batch, whole, reached)
    sizes = zip(reached[:0:-1], reached[-2::-1], strict=True)
    return [first_rows(whole, num_src, num_dst) for num_src, num_dst in sizes]


Adj = tuple[Tensor, Tensor | None, tuple[int, int]]


@dataclass(frozen=True, eq=False)
class PygBatch:
    """A batch in PyG's form; if PyG is installed, `blocks_to_pyg` returns a `Data` with the same attributes instead.

    It contains the edges in one or both of two forms, as positions in `n_id`, sources in row 0 and targets in row 1:

    - `adjs` has the edges of each layer: `(edge_index, e_id, (num_src, num_dst))`, input layer first, as PyG's
      `NeighborSampler` yields them, with `adj_weights` and `adj_types`.
    - `edge_index` has the form of PyG's `NeighborLoader`: hop by hop, the in-edges of the nodes that were new in the
      previous hop, so that every node has one sample for all layers, with `e_id`, `edge_weight` and `edge_type`.

    Reading a form that a batch does not have raises an AttributeError that names the other.

    Args:
        n_id: int64 [num_inputs], raw-graph ids, hop by hop.
        batch_size: number of seeds, which come first in `n_id`.
        edge_index: int64 [2, num_edges], or None.
        adjs: one entry per layer, or None.
        num_sampled_nodes: number of new nodes per hop, starting with the seeds.
        num_sampled_edges: number of edges per hop; None without `edge_index`.
        e_id: int64 [num_edges], raw-graph edge ids.
        edge_weight: floating point [num_edges].
        edge_type: integer [num_edges].
        adj_weights: floating point [num_edges of the layer], one entry per layer.
        adj_types: integer [num_edges of the layer], one entry per layer.
    """

    n_id: Tensor
    batch_size: int
    edge_index: Tensor | None
    adjs: list[Adj] | None
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int] | None = None
    e_id: Tensor | None = None
    edge_weight: Tensor | None = None
    edge_type: Tensor | None = None
    adj_weights: list[Tensor | None] | None = None
    adj_types: list[Tensor | None] | None = None

    def __post_init__(self) -> None:
        for name in ABSENT:
            if getattr(self, name) is None:
                object.__delattr__(self, name)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(ABSENT.get(name, f"PygBatch has no attribute {name!r}"))
