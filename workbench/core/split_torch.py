"""Splitting blocks in plain torch, all parts at once: the CUDA path, and the oracle for the compiled kernels."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.split_compiled import Piece


def split_rows_torch(node_ids: Tensor, blocks: Sequence[Block], order: Tensor, bounds: list[int]) -> list[Piece]:
    """Split a batch into parts on any device, with the same result as `split_rows_compiled`.

    The nodes of all parts are one list of entries (part, node), sorted by part.

    Args:
        node_ids: int64 [num_inputs], raw-graph ids.
        blocks: input layer first.
        order: int64 [num_seeds], seeds grouped by part.
        bounds: num_parts + 1 offsets of the groups in `order`.

    Returns:
        One piece per group.
    """
    num_parts, device = len(bounds) - 1, node_ids.device
    sizes = torch.tensor(bounds, device=device).diff()
    part, node = torch.repeat_interleave(torch.arange(num_parts, device=device), sizes), order
    layers: list[list[Block]] = []
    for block in reversed(blocks):
        edges, indptr = _edges_of_rows(block, node)
        edge_part = torch.repeat_interleave(part, indptr.diff())
        sources = torch.cat((node, block.indices[edges].to(torch.int64)))
        rank, local, part_of, node_of = _first_appearances(torch.cat((part, edge_part)), sources, len(node_ids))
        layers.append(
            _blocks_by_part(
                block, edges, indptr, local[rank[len(node) :]], _ends(part, num_parts), _ends(part_of, num_parts)
            )
        )
        part, node = part_of, node_of
    blocks_by_part = zip(*reversed(layers), strict=True) if layers else ((),) * num_parts
    bounds = [0, *_ends(part, num_parts)]
    return [
        Piece(node_ids[node[lo:hi]], part_blocks, node[lo:hi].clone())
        for (lo, hi), part_blocks in zip(pairwise(bounds), blocks_by_part, strict=True)
    ]


def _ends(part: Tensor, num_parts: int) -> list[int]:
    """Return the end offset of each part's entries."""
    return torch.bincount(part, minlength=num_parts).cumsum(0).tolist()


def _edges_of_rows(block: Block, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positions in the block of the rows' edges, row by row, and the `indptr` over them."""
    starts, degrees = block.indptr[rows], block.in_degrees()[rows]
    indptr = torch.zeros(len(rows) + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(degrees, 0, out=indptr[1:])
    shift = torch.repeat_interleave(starts - indptr[:-1], degrees)
    return shift + torch.arange(len(shift), device=rows.device), indptr


def _first_appearances(part: Tensor, node: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Number the distinct entries (part, node) of each part by first appearance.

    Returns:
        `rank`, the index of each entry's distinct entry; `local`, the local id of each distinct entry; part and node of
        the distinct entries, ordered by (part, local id).
    """
    keys, rank = torch.unique(part * num_nodes + node, return_inverse=True)
    first = torch.full_like(keys, len(part)).scatter_reduce_(
        0, rank, torch.arange(len(part), device=part.device), "amin"
    )
    order = torch.argsort(first)
    order = order[torch.argsort(part[first[order]], stable=True)]
    part_of = part[first[order]]
    starts = torch.searchsorted(part_of, part_of)
    local = torch.empty_like(keys)
    local[order] = torch.arange(len(keys), device=part.device) - starts
    return rank, local, part_of, node[first[order]]


def _blocks_by_part(
    block: Block, edges: Tensor, indptr: Tensor, indices: Tensor, dst_ends: list[int], src_ends: list[int]
) -> list[Block]:
    """Cut the arrays of all parts into one block per part, as copies, so that no part keeps the others alive."""
    fields = {n: t for n, t in block._tensors().items() if t is not None and n not in ("indptr", "indices")}
    indices = indices.to(block.indices.dtype)
    edge_ends = indptr[torch.tensor([0, *dst_ends], device=indptr.device)].tolist()
    num_src = [hi - lo for lo, hi in pairwise([0, *src_ends])]
    return [
        Block(
            indptr[lo : hi + 1] - begin,
            indices[begin:end].clone(),
            num_src=sources,
            num_dst=hi - lo,
            **{name: values[edges[begin:end]] for name, values in fields.items()},
        )
        for (lo, hi), (begin, end), sources in zip(pairwise([0, *dst_ends]), pairwise(edge_ends), num_src, strict=True)
    ]
