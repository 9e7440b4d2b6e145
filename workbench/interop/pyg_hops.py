"""Blocks of a batch from PyG's `NeighborLoader`, which draws one sample per node for all layers, hop by hop."""

import operator
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import check_at_least
from workbench.interop.edge_lists import block_from_edges, check_edge_index

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

    Raises:
        TypeError: if `edge_index` is not an integer tensor.
        ValueError: if the counts do not match, or the subgraph is not directional.
        IndexError: if an edge does not connect positions in `n_id`.
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
    blocks = []
    for num_dst, num_src in zip(reached[-2::-1], reached[:0:-1], strict=True):
        indptr = whole.indptr[: num_dst + 1]
        fields = {name: t[: int(indptr[-1])] for name, t in whole._tensors().items() if t is not None}
        blocks.append(replace(whole, **fields | {"indptr": indptr}, num_src=num_src, num_dst=num_dst))
    return blocks
