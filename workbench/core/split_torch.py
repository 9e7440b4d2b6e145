"""Splitting a batch in plain torch, all parts at once: it runs on CUDA, and the kernels are tested against it."""

from itertools import pairwise

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch


def split_rows_torch(mb: MiniBatch, order: Tensor, bounds: list[int]) -> list[MiniBatch]:
    """`split_rows_compiled` in plain torch, for any device.

    Every node of every part is an entry (part, node); entries of all parts are kept in one list sorted by part.

    Args:
        mb: the batch.
        order: int64 [num_seeds], seeds grouped by part.
        bounds: positions in `order` where groups begin, and its length.
    """
    num_parts = len(bounds) - 1
    sizes = torch.tensor(bounds, device=mb.device).diff()
    part, node = torch.repeat_interleave(torch.arange(num_parts, device=mb.device), sizes), order
    layers: list[list[Block]] = []
    for block in reversed(mb.blocks):
        edges, indptr = _edges_of_rows(block, node)
        edge_part = torch.repeat_interleave(part, indptr.diff())
        sources = torch.cat((node, block.indices[edges].to(torch.int64)))
        rank, local, part_of, node_of = _first_appearances(torch.cat((part, edge_part)), sources, mb.num_inputs)
        layers.append(
            _cut(block, edges, indptr, local[rank[len(node) :]], _ends(part, num_parts), _ends(part_of, num_parts))
        )
        part, node = part_of, node_of
    blocks = zip(*reversed(layers), strict=True) if layers else ((),) * num_parts
    bounds = [0, *_ends(part, num_parts)]
    return [
        MiniBatch(mb.node_ids[node[lo:hi]], own, parent=node[lo:hi].clone(), step=mb.step)
        for (lo, hi), own in zip(pairwise(bounds), blocks, strict=True)
    ]


def _ends(part: Tensor, num_parts: int) -> list[int]:
    """Where each part's entries end."""
    return torch.bincount(part, minlength=num_parts).cumsum(0).tolist()


def _edges_of_rows(block: Block, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Positions in the block of the rows' edges, row after row, and the `indptr` over them."""
    starts, degrees = block.indptr[rows], block.in_degrees()[rows]
    indptr = torch.zeros(len(rows) + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(degrees, 0, out=indptr[1:])
    shift = torch.repeat_interleave(starts - indptr[:-1], degrees)
    return shift + torch.arange(len(shift), device=rows.device), indptr


def _first_appearances(part: Tensor, node: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Number the distinct (part, node) of each part by first appearance.

    Returns:
        For every given entry its distinct one (`rank`); for every distinct one its local id; part and node of the
        distinct ones in the order of (part, local id).
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


def _cut(
    block: Block, edges: Tensor, indptr: Tensor, indices: Tensor, dst_ends: list[int], src_ends: list[int]
) -> list[Block]:
    """One block a part from the arrays of all parts; copies, so that a part does not keep the others alive."""
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
