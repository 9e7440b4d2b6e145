"""A small batch for trying a model: nodes, rows and edge attributes of a batch, rewired so that seeds share sources."""

from itertools import pairwise

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch

_SEEDS, _NEW_PER_LAYER, _MAX_DEGREE = 12, 6, 64


def small_batch(mb: MiniBatch, dtype: torch.dtype | None = None) -> MiniBatch | None:
    """Build a batch of a few dozen nodes, in which every node has one sample for all layers.

    Its nodes are the first of `mb`, with the degrees, edge ids, weights and types of their rows, so that a model finds
    everything that it looks up by id. Only the sources are others: windows of a few nodes, because the neighbours of a
    few seeds of a large graph are distinct, and a layer that normalises over shared sources would seem exact.

    Args:
        mb: a batch without exchanges.
        dtype: dtype of the edge weights; None for that of `mb`.

    Returns:
        The batch, with at most 12 seeds and 6 more nodes per layer; None if `mb` has fewer than 4 nodes.
    """
    if mb.num_inputs < 4:
        return None
    sizes = _sizes(mb.num_inputs, len(mb.blocks))
    node_ids = mb.node_ids[: sizes[0]]
    return MiniBatch(node_ids, tuple(_blocks(mb.blocks[0], sizes, dtype)) if mb.blocks else (), step=mb.step)


def _sizes(num_nodes: int, num_layers: int) -> list[int]:
    """Number of nodes that each layer reads, and of seeds."""
    seeds = min(_SEEDS, num_nodes // 2)
    new = min(_NEW_PER_LAYER, (num_nodes - seeds) // max(1, num_layers))
    return [seeds + new * layer for layer in range(num_layers, -1, -1)]


def _blocks(rows: Block, sizes: list[int], dtype: torch.dtype | None) -> list[Block]:
    """One block per layer, row prefixes of one CSR whose row i has the attributes of row i of `rows`, cyclically."""
    row = torch.arange(sizes[1], device=rows.device) % max(1, rows.num_dst)
    degrees = rows.in_degrees()[row].clamp(max=_MAX_DEGREE) if rows.num_dst else torch.zeros_like(row)
    indptr = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
    destination = torch.repeat_interleave(torch.arange(sizes[1], device=rows.device), degrees)
    offset = torch.arange(len(destination), device=rows.device) - indptr[destination]
    position = rows.indptr[row[destination]] + offset
    limit = _sources_within_reach(sizes, rows.device)[destination]
    indices = ((7 * destination + offset * (1 + destination % 3)) % limit).to(rows.indices.dtype)
    attributes = {
        name: None if (t := getattr(rows, name)) is None else t[position] for name in ("edge_ids", "edge_type")
    }
    if rows.edge_weight is not None:
        attributes["edge_weight"] = rows.edge_weight.detach()[position].to(dtype or rows.edge_weight.dtype)
    ends = indptr.tolist()
    return [
        Block(
            indptr[: num_dst + 1],
            indices[: ends[num_dst]],
            num_src,
            num_dst,
            **{name: None if t is None else t[: ends[num_dst]] for name, t in attributes.items()},
        )
        for num_src, num_dst in pairwise(sizes)
    ]


def _sources_within_reach(sizes: list[int], device: torch.device) -> Tensor:
    """For each row the number of sources of the last layer that has this row."""
    limit = torch.empty(sizes[1], dtype=torch.int64, device=device)
    for num_src, num_dst in pairwise(sizes):
        limit[:num_dst] = num_src
    return limit
