"""A small batch for trying a model: nodes, rows and edge attributes of a batch, rewired so that seeds share sources."""

from itertools import pairwise

import torch

from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.core.row_prefix import first_rows
from workbench.interop.pyg_forms import has_one_sample_per_node

_SEEDS, _NEW_PER_LAYER, _MAX_DEGREE = 12, 6, 64


def small_batch(mb: MiniBatch, dtype: torch.dtype | None = None) -> MiniBatch | None:
    """Build a batch of a few dozen nodes, in which every node has one sample for all layers if that is so in `mb`.

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
    if has_one_sample_per_node(mb.blocks):
        blocks = _prefixes(_rewired(mb.blocks[0], 0, sizes, dtype), sizes) if mb.blocks else []
    else:
        blocks = [_rewired(rows, 5 * layer, sizes[layer : layer + 2], dtype) for layer, rows in enumerate(mb.blocks)]
    return MiniBatch(mb.node_ids[: sizes[0]], tuple(blocks), step=mb.step)


def _sizes(num_nodes: int, num_layers: int) -> list[int]:
    """Number of nodes that each layer reads, and of seeds."""
    seeds = min(_SEEDS, num_nodes // 2)
    new = min(_NEW_PER_LAYER, (num_nodes - seeds) // max(1, num_layers))
    return [seeds + new * layer for layer in range(num_layers, -1, -1)]


def _rewired(rows: Block, shift: int, sizes: list[int], dtype: torch.dtype | None) -> Block:
    """A block whose row i has the attributes of row i of `rows`, cyclically.

    Args:
        rows: the block of the large batch.
        shift: where the windows of sources start.
        sizes: numbers of sources, of destinations and, if rows are those of later layers too, of their destinations:
            a row that a layer has reads only sources that this layer has.
        dtype: dtype of the edge weights.
    """
    row = torch.arange(sizes[1], device=rows.device) % max(1, rows.num_dst)
    degrees = rows.in_degrees()[row].clamp(max=_MAX_DEGREE) if rows.num_dst else torch.zeros_like(row)
    indptr = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
    destination = torch.repeat_interleave(torch.arange(sizes[1], device=rows.device), degrees)
    offset = torch.arange(len(destination), device=rows.device) - indptr[destination]
    position = rows.indptr[row[destination]] + offset
    num_sources = torch.empty_like(row)
    for num_src, num_dst in pairwise(sizes):
        num_sources[:num_dst] = num_src
    sources = (7 * destination + offset * (1 + destination % 3) + shift) % num_sources[destination]
    weight = None if rows.edge_weight is None else rows.edge_weight.detach()[position]
    return Block(
        indptr,
        sources.to(rows.indices.dtype),
        sizes[0],
        sizes[1],
        edge_ids=None if rows.edge_ids is None else rows.edge_ids[position],
        edge_weight=None if weight is None else weight.to(dtype or weight.dtype),
        edge_type=None if rows.edge_type is None else rows.edge_type[position],
    )


def _prefixes(whole: Block, sizes: list[int]) -> list[Block]:
    """One block per layer, row prefixes of one."""
    return [first_rows(whole, num_src, num_dst) for num_src, num_dst in pairwise(sizes)]
