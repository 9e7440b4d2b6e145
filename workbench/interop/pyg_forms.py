"""The two forms of a PyG batch: edges per layer (`adjs`), and one `edge_index` in which a node has one sample."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.row_prefix import first_rows
from workbench.core.split import select_blocks


def has_one_sample_per_node(blocks: Sequence[Block]) -> bool:
    """Return whether the rows of every block are the first rows of the block before it.

    True for full neighbourhoods, DENSE samples and batches of `NeighborLoader`, and for their micro-batches.

    Args:
        blocks: input layer first.
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
        node_ids: int64 [num_inputs], raw-graph ids.
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
    counts = torch.cat(degrees)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return replace(blocks[0], **{"edge_ids": None, "edge_weight": None, "edge_type": None} | fields, indptr=indptr)
