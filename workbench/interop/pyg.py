"""Conversions to and from PyTorch Geometric (PyG): batches and graphs in `edge_index` form."""

import operator
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from types import NoneType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import INT64_MAX, check_at_least, check_choice, check_ids, check_type
from workbench.core.exchange import refuse_halo
from workbench.core.graph import Graph
from workbench.core.minibatch import CarriedData, MiniBatch, Positions, Remembered
from workbench.core.shared_storage import total_bytes
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
        _check_layers(batch)
        blocks = _from_layers(batch)
    elif getattr(batch, "num_sampled_nodes", None) is not None:
        blocks = blocks_of_hops(batch)
    else:
        raise ValueError(f"the batch has neither adjs nor num_sampled_nodes; {why_without_hops(batch)}")
    return node_ids, tuple(blocks)


def _check_layers(batch: Any) -> None:
    """Refuse what is no list of layers, and a batch of both forms, of which one alone has edge weights or types."""
    for name in ("adjs", "adj_weights", "adj_types"):
        value = getattr(batch, name, None)
        check_type(name, value, (list, tuple, NoneType), "pass a list with one entry per layer, as to_pyg does")
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


def graph_to_pyg(graph: Graph) -> Any:
    """Convert a graph to a PyG `Data`, or without PyG to an object with the same attributes: `Graph.to_pyg`."""
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
    try:
        from torch_geometric.data import Data
    except ImportError:
        Data = SimpleNamespace
    return Data(**{name: value for name, value in fields.items() if value is not None})


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
        'subgraph_type="directional" alone: pass workbench.interop.count_hops(batch, 2) instead, with the length of '
        "num_neighbors, or sample with wb.NeighborSampler and use to_pyg"
    )


def count_hops(batch: Any, num_hops: int) -> Any:
    """Count the nodes and edges of each hop of a batch, as PyG does with pyg-lib, but not with torch-sparse.

    Hops are told apart by the order of nodes and edges, which is that of discovery. The batch alone does not show how
    many there are: nodes of the last one may have no in-edges because they were not expanded, or because none exist.

    Args:
        batch: of PyG's `NeighborLoader` or `LinkNeighborLoader` with `subgraph_type="directional"`; gets
            `num_sampled_nodes` and `num_sampled_edges`, unless it has them.
        num_hops: length of the loader's `num_neighbors`, at least 1.

    Returns:
        The batch.

    Raises:
        ValueError: Nodes and edges are in another order, or edges lead into nodes of the last hop, as in batches of
            "bidirectional" or "induced" subgraphs.
    """
    check_at_least("num_hops", num_hops, 1)
    if getattr(batch, "num_sampled_nodes", None) is not None:
        return batch
    num_seeds = getattr(batch, "batch_size", None)
    if num_seeds is None and getattr(batch, "edge_label_index", None) is not None:
        num_seeds = batch.edge_label_index.max() + 1  # the ends of the pairs, each once
    (num_seeds,) = _counts("batch_size", [num_seeds])
    src, dst = check_edge_index(batch.edge_index)
    # Entry i is the number of nodes that are known after i edges.
    known = torch.cat([src.new_tensor([num_seeds]), src + 1]).cummax(0).values
    in_order = bool((dst[1:] >= dst[:-1]).all()) and bool((known.diff() <= 1).all())
    if not in_order or int(known[-1]) != len(batch.n_id):
        raise ValueError(f"nodes and edges are not in the order in which hops discover them; {_REMEDY}")
    reached, ends = [0, num_seeds], [0]
    for _ in range(num_hops):
        ends.append(int(torch.searchsorted(dst, reached[-1])))
        reached.append(int(known[ends[-1]]))
    if ends[-1] != len(dst):
        raise ValueError(
            f"{len(dst) - ends[-1]} edges lead beyond hop {num_hops}; pass the length of num_neighbors, and sample "
            'with subgraph_type="directional"'
        )
    batch.num_sampled_nodes = [end - start for start, end in pairwise(reached)]
    batch.num_sampled_edges = [end - start for start, end in pairwise(ends)]
    return batch


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


_SEED_ATTRIBUTES = ("input_id", "seed_time")  # of NeighborLoader, [batch_size]

_STRUCTURE = ("n_id", "edge_index", "adjs", "num_sampled_nodes", "num_sampled_edges", "batch_size")

_EDGE_FIELDS = ("e_id", "edge_weight", "edge_type")  # those of blocks


def batch_of_positions(batch: Any) -> MiniBatch:
    """Convert a PyG batch to a batch for splitting.

    Edge ids are positions in `edge_index` if the batch has edge attributes that blocks don't have.
    """
    if not _edge_attributes(batch):
        return MiniBatch.from_pyg(batch)
    names = ("n_id", "batch_size", "edge_index", "num_sampled_nodes", "num_sampled_edges", "batch")
    hops = SimpleNamespace(**{name: getattr(batch, name, None) for name in names})
    hops.e_id = torch.arange(batch.edge_index.shape[1], device=batch.edge_index.device)
    mb = MiniBatch.from_pyg(hops)
    adjs = getattr(batch, "adjs", None)
    if adjs is not None and [block.num_edges for block in mb.blocks] != [adj[0].shape[1] for adj in adjs]:
        raise ValueError(
            f"{', '.join(_edge_attributes(batch))} have a row per edge of edge_index, which has one sample per node, "
            "but the layers (adjs) have samples of their own; delete these attributes, or read them per layer by e_id"
        )
    return mb


def part_of_batch(part: MiniBatch, whole: Any) -> Any:
    """Convert a micro-batch to a PyG batch with the rows of the attributes of the whole one."""
    assert part.parent is not None
    out = part.to_pyg()
    extra = _edge_attributes(whole)
    if extra:
        positions = out.e_id
        _restore_edge_fields(out, whole)
        for name in extra:
            setattr(out, name, getattr(whole, name)[positions])
    for name, value in _attributes(whole).items():
        if name in (*_STRUCTURE, *_EDGE_FIELDS, *extra) or name in out:
            continue
        if isinstance(value, Tensor) and whole.is_node_attr(name):
            value = value[part.parent]
        elif name in _SEED_ATTRIBUTES:
            value = value[part.parent[: part.num_seeds]]
        setattr(out, name, value)
    return out


def carried_attributes(batch: Any, blocks: Sequence[Block]) -> CarriedData | None:
    """Refer to the node- and edge-level attributes of a PyG batch; None if it has none but those of blocks."""
    if not _edge_attributes(batch) and not _node_attributes(batch):
        return None
    sizes = len(batch.n_id), tuple(block.num_edges for block in blocks)
    return CarriedData(batch, None, Remembered(_edge_positions, batch), *sizes)


def _edge_positions(batch: Any) -> Positions:
    return tuple(block.edge_ids for block in batch_of_positions(batch).blocks)


def batch_to_pyg(mb: MiniBatch, form: str = "adjs") -> Any:
    """Convert a batch to PyG's form: `MiniBatch.to_pyg`."""
    refuse_halo(mb.exchanges, "converted to PyG")
    return blocks_to_pyg(mb.node_ids, mb.blocks, form)


def batch_from_pyg(batch: Any, step: int = 0) -> MiniBatch:
    """Convert a batch of PyG to one that refers to its node- and edge-level attributes: `MiniBatch.from_pyg`."""
    node_ids, blocks = blocks_from_pyg(batch)
    mb = MiniBatch(node_ids, blocks, step=step, carried=carried_attributes(batch, blocks))
    return mb.validate(unique=not is_disjoint(batch))


def edge_rows(mb: MiniBatch) -> dict[str, Callable[[], list[Tensor]]]:
    """Functions that gather the edge-level attributes that a batch carries, per layer, by name.

    Args:
        mb: a batch of `MiniBatch.from_pyg`, or a micro-batch of one; any other has none.
    """
    source = _carried_source(mb)
    return {name: partial(_edge_rows, mb, getattr(source, name)) for name in _edge_attributes(source)}


def node_rows(mb: MiniBatch) -> dict[str, Callable[[], Tensor]]:
    """Functions that gather the node-level attributes that a batch carries, by name.

    Args:
        mb: a batch of `MiniBatch.from_pyg`, or a micro-batch of one; any other has none.
    """
    source = _carried_source(mb)
    return {name: partial(_node_rows, mb, getattr(source, name)) for name in _node_attributes(source)}


def rows_not_read(mb: MiniBatch, read: Container[str]) -> list[Tensor]:
    """Gather the carried attributes of a PyG batch that its model does not read, without the features.

    Args:
        mb: a batch of `MiniBatch.from_pyg`, or a micro-batch of one; any other has none.
        read: names of the parameters that the model is called with.
    """
    of_edges = {name: rows()[0] for name, rows in edge_rows(mb).items() if name not in read}
    of_nodes = {name: rows() for name, rows in node_rows(mb).items() if name not in read and name != "x"}
    return [*of_edges.values(), *of_nodes.values()]


def resident_bytes(batch: Any) -> int:
    """Bytes of a PyG batch on its device, each storage once."""
    tensors = [value for value in _attributes(batch).values() if isinstance(value, Tensor)]
    return total_bytes(value for value in tensors if value.device == batch.n_id.device)


def _restore_edge_fields(out: Any, whole: Any) -> None:
    """Replace positions in `edge_index` by the values that stand there."""

    def at(name: str, positions: Tensor) -> Tensor | None:
        values = getattr(whole, name, None)
        return None if values is None else values[positions]

    per_layer = [e_id for _, e_id, _ in out.adjs]
    out.adjs = [(edges, at("e_id", e_id), size) for edges, e_id, size in out.adjs]
    out.adj_weights = [at("edge_weight", e_id) for e_id in per_layer]
    out.adj_types = [at("edge_type", e_id) for e_id in per_layer]
    positions = out.e_id
    for name in _EDGE_FIELDS:
        setattr(out, name, at(name, positions))


def _attributes(batch: Any) -> dict[str, Any]:
    return batch.to_dict() if hasattr(batch, "to_dict") else {}


def _edge_attributes(batch: Any) -> list[str]:
    """Names of edge-level attributes beyond those of blocks."""
    return [name for name in _further_tensors(batch) if batch.is_edge_attr(name)]


def _node_attributes(batch: Any) -> list[str]:
    """Names of node-level attributes."""
    return [name for name in _further_tensors(batch) if batch.is_node_attr(name)]


def _further_tensors(batch: Any) -> list[str]:
    known = (*_STRUCTURE, *_EDGE_FIELDS, *_SEED_ATTRIBUTES)
    return [name for name in _attributes(batch) if name not in known and isinstance(getattr(batch, name), Tensor)]


def _carried_source(mb: MiniBatch) -> Any:
    """The PyG batch whose attributes a batch carries; None without one."""
    source = None if mb.carried is None else mb.carried.source
    return source if hasattr(source, "n_id") else None


def _node_rows(mb: MiniBatch, values: Tensor) -> Tensor:
    assert mb.carried is not None
    return _rows(values, mb.carried.rows_of_nodes(mb.num_inputs), mb.device)


def _edge_rows(mb: MiniBatch, values: Tensor) -> list[Tensor]:
    assert mb.carried is not None
    return [_rows(values, rows, mb.device) for rows in mb.carried.rows_of_edges(mb.blocks)]


def _rows(values: Tensor, rows: Tensor | None, device: torch.device) -> Tensor:
    return (values if rows is None else values[rows.to(values.device)]).to(device)
