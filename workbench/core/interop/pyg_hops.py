"""Blocks of PyG's `NeighborLoader` batches: hop after hop, one sample per node for all layers."""

import operator
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from workbench.core.block import Block
from workbench.core.errors import check_at_least
from workbench.core.interop.edges import block_from_edges, check_edge_index

_UNCHANGED = "pass the batch as NeighborLoader gave it"


def _counts(name: str, values: Any) -> list[int]:
    """Numbers that PyG gives as a list of integers or of tensors, or as one tensor."""
    try:
        counts = [operator.index(value) for value in values]
    except TypeError as error:
        raise TypeError(f"{name} is {values!r}, not whole numbers; {_UNCHANGED}") from error
    for count in counts:
        check_at_least(f"a number of {name}", count, 0)
    return counts


def _nodes_met(batch: Any) -> list[int]:
    """How many nodes were met after each hop, if the hops are those of the batch's nodes."""
    counts = _counts("num_sampled_nodes", batch.num_sampled_nodes)
    if len(counts) < 2:
        raise ValueError(f"num_sampled_nodes is {counts}; it must count the seeds and the new nodes of each hop")
    if sum(counts) != len(batch.n_id):
        raise ValueError(
            f"num_sampled_nodes {counts} add up to {sum(counts)}, but n_id has {len(batch.n_id)} nodes; {_UNCHANGED}"
        )
    if (seeds := getattr(batch, "batch_size", None)) is None:
        return list(accumulate(counts))
    if _counts("batch_size", [seeds]) != counts[:1]:
        raise ValueError(f"batch_size is {seeds}, but num_sampled_nodes begins with {counts[0]} seeds; {_UNCHANGED}")
    return list(accumulate(counts))


def _check_hops(batch: Any, whole: Block, met: list[int]) -> None:
    """Every hop must have the edges into the nodes first met one hop before, and no other."""
    if getattr(batch, "num_sampled_edges", None) is None:
        return
    counts = _counts("num_sampled_edges", batch.num_sampled_edges)
    ends = [int(whole.indptr[count]) for count in met[:-1]]
    if list(accumulate(counts)) != ends:
        found = [end - start for start, end in pairwise([0, *ends])]
        raise ValueError(
            f"num_sampled_edges are {counts}, but edge_index has {found} edges into the nodes of each hop; {_UNCHANGED}"
        )


def blocks_of_hops(batch: Any) -> list[Block]:
    """One block per layer, row prefixes of one CSR.

    Args:
        batch: with `n_id`, `edge_index` and `num_sampled_nodes`; `num_sampled_edges` and `batch_size`, where it has
            them, must agree.

    Raises:
        TypeError: an `edge_index` that is no integer tensor.
        ValueError: numbers that do not fit each other, or edges of another kind of subgraph.
        IndexError: an edge that joins no positions in `n_id`.
    """
    met = _nodes_met(batch)
    theirs = {"edge_ids": "e_id", "edge_weight": "edge_weight", "edge_type": "edge_type"}
    attributes = {name: getattr(batch, other, None) for name, other in theirs.items()}
    src, dst = check_edge_index(batch.edge_index)
    if dst.numel() and met[-2] <= int(dst.max()) < met[-1]:
        raise ValueError(
            f"edge_index has an edge into node {int(dst.max())}, one of those met in the last hop (from {met[-2]} on); "
            'batches of subgraph_type="bidirectional" or "induced" can\'t be cut: take "directional"'
        )
    whole = block_from_edges(src, dst, met[-1], met[-2], attributes)
    _check_hops(batch, whole, met)
    blocks = []
    for num_dst, num_src in zip(met[-2::-1], met[:0:-1], strict=True):
        indptr = whole.indptr[: num_dst + 1]
        fields = {name: t[: int(indptr[-1])] for name, t in whole._tensors().items() if t is not None}
        blocks.append(replace(whole, **fields | {"indptr": indptr}, num_src=num_src, num_dst=num_dst))
    return blocks
