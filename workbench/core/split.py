"""Splitting blocks by seeds into micro-batches that keep every edge of their computation graph.

Betty (Yang et al., ASPLOS 2023), section 4.2: starting at the output block, a micro-batch copies the rows of its
destinations completely; these destinations, followed by the new sources, are the destinations of the next block
inwards. Nothing is sampled again. `MiniBatch.split` and `MiniBatch.select` wrap these functions.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import ID_DTYPES, check_ids, check_tensors, check_vector
from workbench.core.row_prefix import first_rows, row_prefixes
from workbench.core.split_compiled import Piece, split_rows_compiled
from workbench.core.split_torch import split_rows_torch
from workbench.kernels.csr import group_rows


def split_blocks(node_ids: Tensor, blocks: Sequence[Block], part: Tensor) -> list[Piece]:
    """Split blocks into one piece per part of the seeds.

    A piece contains its seeds in the batch's order, and every row complete and in order. Its sources are relabelled:
    destinations first, then new sources by first appearance.

    Args:
        node_ids: int64 [num_inputs], raw-graph ids, on any device.
        blocks: input layer first.
        part: int64 or int32 [num_seeds], non-negative part number of each seed.

    Returns:
        One piece per part that has seeds, in the order of the part numbers.

    Raises:
        TypeError: if `part` is not an integer tensor.
        ValueError: if `part` has another length or a negative number.

    Source: Betty (ASPLOS 2023), section 4.2.
    """
    return _split(node_ids, blocks, *_seeds_by_part(part, num_seeds(node_ids, blocks)))


def select_blocks(node_ids: Tensor, blocks: Sequence[Block], groups: Sequence[Tensor]) -> list[Piece]:
    """Extract one piece per group of seeds; unlike in `split_blocks`, groups may overlap and omit seeds.

    Args:
        node_ids: int64 [num_inputs], raw-graph ids, on any device.
        blocks: input layer first.
        groups: int64 [any] per group, positions of distinct seeds in the required order.

    Raises:
        ValueError: if a group contains a seed twice.
        IndexError: if a position is out of range.
    """
    count = num_seeds(node_ids, blocks)
    rows = [check_ids("group", group, count, unique=True) for group in groups]
    bounds = list(accumulate((len(group) for group in rows), initial=0))
    return _split(node_ids, blocks, torch.cat(rows), bounds) if rows else []


def num_seeds(node_ids: Tensor, blocks: Sequence[Block]) -> int:
    """Return the number of destinations of the output block; without blocks, the number of nodes."""
    return blocks[-1].num_dst if blocks else len(node_ids)


def _split(node_ids: Tensor, blocks: Sequence[Block], order: Tensor, bounds: list[int]) -> list[Piece]:
    """Extract one piece per group of seeds `order[bounds[i]:bounds[i + 1]]`."""
    order = order.to(node_ids.device)
    split_rows = split_rows_compiled if _runs_compiled(node_ids, blocks) else split_rows_torch
    pieces = split_rows(node_ids, blocks, order, bounds)
    shared = [layer for layer, is_prefix in enumerate(row_prefixes(blocks)) if is_prefix]
    return [_share_rows(piece, shared) for piece in pieces] if shared else pieces


def _runs_compiled(node_ids: Tensor, blocks: Sequence[Block]) -> bool:
    """Return whether the compiled kernels can be used: they support neither other devices nor autograd."""
    return node_ids.device.type == "cpu" and not any(
        block.edge_weight is not None and block.edge_weight.requires_grad for block in blocks
    )


def _seeds_by_part(part: Tensor, num_seeds: int) -> tuple[Tensor, list[int]]:
    """Group seeds by part, on the CPU; return them and the offsets of the non-empty groups."""
    check_tensors(part=part)
    check_vector("part", part, num_seeds, ID_DTYPES)
    if not num_seeds:
        return torch.empty(0, dtype=torch.int64), [0]
    labels = part.detach().to("cpu", torch.int64).contiguous()
    low, high = (int(v) for v in torch.aminmax(labels))
    if low < 0:
        raise ValueError(f"part contains {low}; part numbers can't be negative (to drop seeds, sample without them)")
    if high > 4 * num_seeds + 1024:  # sparse part numbers: a counting sort over them would cost more than the batch
        labels = torch.unique(labels, return_inverse=True)[1]
        high = int(labels.max())
    groups = group_rows(labels, torch.arange(num_seeds), high + 1, num_seeds)
    ends = groups.indptr[1:]
    return groups.indices.to(torch.int64), [0, *ends[groups.indptr.diff() > 0].tolist()]


def _share_rows(piece: Piece, layers: list[int]) -> Piece:
    """Make blocks of a piece views of the block below if those of the batch are: their rows are equal."""
    blocks = list(piece.blocks)
    for layer in layers:
        blocks[layer] = first_rows(blocks[layer - 1], blocks[layer].num_src, blocks[layer].num_dst)
    return piece._replace(blocks=tuple(blocks))
