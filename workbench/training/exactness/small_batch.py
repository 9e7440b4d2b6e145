"""Small batches for trying a model: rows, ids and edge data of a batch, wired so that every part lacks rows.

A layer that counts degrees, or looks further than its batch has layers, computes the same in a part as in the whole if
the part has all rows of the whole, or shares no node with other parts. So nodes are arranged in a ring, a row reads
sources near its own position, and the parts of the seeds are arcs: a part reads nodes at its ends whose rows belong to
other parts, and never comes around to the rows on the far side. Sources alone are new: ids, edge ids, weights, types
and features are those of rows of the batch, so that a model finds everything that it looks up.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.core.row_prefix import first_rows
from workbench.interop.carried_dtype import with_carried_dtype
from workbench.interop.pyg import has_one_sample_per_node

NUM_PARTS = 3
_MAX_DEGREE = 64
_REACH = 2  # positions by which a row of any wiring reads ahead or back


@dataclass(frozen=True)
class Wiring:
    """Which sources the rows of a small batch have.

    Args:
        offsets: positions of the sources, relative to that of the row, in the order in which they are read. "new" is a
            node that later layers do not have; "common" is one that rows of all parts read, if no layer has its row.
        degrees: degrees of the rows, cyclically by position; None for those of rows of the batch, whose sources repeat.
        stride: positions between seeds that follow each other; it must have no divisor in common with the seeds.
        is_closed: rows read no position outside of their part.
    """

    offsets: tuple[int | str, ...]
    degrees: tuple[int, ...] | None
    stride: int = 1
    is_closed: bool = False


WIRINGS = (Wiring((1, "new", -1, 0), (3, 2, 4, 3)), Wiring((2, "new", -1, 1, -2), (2, 5, 3, 4), stride=2))
"""Both can fail: parts lack rows on both sides, of all degrees, with self loops and without."""
OF_ITS_DEGREES = Wiring((1, "new", -1), None)
"""For models that accept the degrees of their batch alone, such as a fixed number of neighbours."""
APART = Wiring((1, "new", -1, 0), (3, 2, 4, 3), is_closed=True)
"""Parts that share no node."""
COMMON_LEAVES = Wiring((1, "new", "common", -1, 0), (4, 3, 5, 3), is_closed=True)
"""Parts that share nodes, but have the rows of all nodes that they read."""


class SmallBatch(NamedTuple):
    """A small batch.

    Args:
        mb: the batch.
        rows: int64 [num_inputs], local id in the large batch of every node.
        part: int64 [num_seeds], part of every seed.
    """

    mb: MiniBatch
    rows: Tensor
    part: Tensor


class Overlap(NamedTuple):
    """What the parts of a batch have in common.

    Args:
        shares: parts read the same node.
        lacks: in every layer, every part reads a node whose row, which has edges, another part has and it lacks.
        lacks_any: some part does in some layer.
    """

    shares: bool
    lacks: bool
    lacks_any: bool


def small_batch(mb: MiniBatch, dtype: torch.dtype | None = None, wiring: Wiring = WIRINGS[0]) -> SmallBatch | None:
    """Build a batch of a few dozen nodes, in which every node has one sample for all layers if that is so in `mb`.

    Args:
        mb: a batch without exchanges.
        dtype: dtype of the edge weights and of carried floating-point data; None for those of `mb`.
        wiring: the sources.

    Returns:
        The batch, with 12 seeds or 6 per layer and 3, and half as many new nodes per layer; nodes of `mb` are repeated
        if it has fewer. None if `mb` has fewer than 4 nodes.
    """
    if mb.num_inputs < 4:
        return None
    layout = _Layout(len(mb.blocks), wiring, mb.device)
    blocks: list[Block] = []
    positions: tuple[Tensor, ...] = ()
    if mb.blocks and has_one_sample_per_node(mb.blocks):
        whole, position = _block(mb, layout, 0, [*range(len(mb.blocks))], dtype)
        blocks = [first_rows(whole, num_src, num_dst) for num_src, num_dst in pairwise(layout.sizes)]
        positions = tuple(position[: block.num_edges] for block in blocks)
    elif mb.blocks:
        made = [_block(mb, layout, layer, [layer], dtype) for layer in range(len(mb.blocks))]
        blocks, positions = [block for block, _ in made], tuple(position for _, position in made)
    rows = torch.arange(layout.sizes[0], device=mb.device) % mb.num_inputs
    carried = mb.carried and mb.carried.take(rows, lambda: positions)
    small = MiniBatch(mb.node_ids[rows], tuple(blocks), step=mb.step, carried=carried)
    return SmallBatch(with_carried_dtype(small, dtype), rows, layout.parts)


def overlap(parts: list[MiniBatch]) -> Overlap:
    """Find out what the parts of a batch have in common.

    Args:
        parts: its parts, at least one, with the same number of blocks.
    """
    parents = [part.parent for part in parts]
    lists = [t for t in parents if t is not None]
    ids, local = torch.cat(lists if len(lists) == len(parts) else [part.node_ids for part in parts]).unique(
        return_inverse=True
    )
    nodes = local.split([part.num_inputs for part in parts])
    shares, lacking = False, []
    for blocks in zip(*(part.blocks for part in parts), strict=True):
        readers, has_row = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        for block, mine in zip(blocks, nodes, strict=True):
            readers[mine[: block.num_src]] += 1
            has_row[mine[: block.num_dst][block.in_degrees() > 0]] = True
        for block, mine in zip(blocks, nodes, strict=True):
            missing = has_row.clone()
            missing[mine[: block.num_dst]] = False
            lacking.append(bool(missing[mine[: block.num_src]].any()))
        shares |= bool((readers > 1).any())
    return Overlap(shares, all(lacking), any(lacking))


class _Layout:
    """Positions of the nodes on the ring, and the part of each.

    Args:
        num_layers: number of blocks.
        wiring: the sources.
        device: device of the batch.
    """

    def __init__(self, num_layers: int, wiring: Wiring, device: torch.device) -> None:
        arc = max(4, _REACH * num_layers + 1)  # an arc and what it reaches in all layers is never the ring
        seeds, self.new = NUM_PARTS * arc, NUM_PARTS * (arc // 2)
        self.sizes = [seeds + self.new * layer for layer in range(num_layers, -1, -1)]
        self.arc, self.seeds, self.wiring = arc, seeds, wiring
        seed = torch.arange(seeds, device=device)
        stride = wiring.stride if gcd(seeds, wiring.stride) == 1 else seeds - 1
        of_seed = seed * stride % seeds
        self.seed_at = torch.empty_like(seed).scatter_(0, of_seed, seed)
        of_new = -(-torch.arange(self.new, device=device) * seeds // max(1, self.new))  # rounded up, so that it reads
        # the new node of its own position in the next layer, and no node is out of reach
        self.position = torch.cat([of_seed, *[of_new] * num_layers])
        self.parts = of_seed // arc

    def source(self, position: Tensor, choice: Tensor, first_new: Tensor) -> Tensor:
        """Local ids of sources.

        Args:
            position: int64 [num_edges], that of the row.
            choice: int64 [num_edges], the entry of the wiring's `offsets`.
            first_new: int64 [num_edges], the first new node that the row may read.
        """
        offsets, device = self.wiring.offsets, position.device
        relative = torch.tensor([o if isinstance(o, int) else 0 for o in offsets], device=device)[choice]
        at = (position + relative) % self.seeds
        if self.wiring.is_closed:
            start = position // self.arc * self.arc
            at = start + (position - start + relative) % self.arc
        new = position * self.new // self.seeds
        is_common = torch.tensor([o == "common" for o in offsets], device=device)[choice] & (first_new == self.sizes[1])
        new = torch.where(is_common, new % (self.new // NUM_PARTS), new)
        is_new = torch.tensor([isinstance(o, str) for o in offsets], device=device)[choice]
        return torch.where(is_new, first_new + new, self.seed_at[at])


def _block(
    mb: MiniBatch, layout: _Layout, layer: int, layers: list[int], dtype: torch.dtype | None
) -> tuple[Block, Tensor]:
    """Build a block whose rows have the attributes of rows of `mb`, and return the positions of its edges there.

    Args:
        mb: the large batch.
        layout: the arrangement.
        layer: the layer of the block.
        layers: the layers that share the block's rows: a row has the attributes and the sources of the last of them
            that has it.
        dtype: dtype of the edge weights.
    """
    sizes, wiring, device = layout.sizes, layout.wiring, mb.device
    first = [0, *(sizes[other + 1] for other in layers[::-1])]
    per_group = [
        _row_edges(mb.blocks[other], torch.arange(start, stop, device=device), layout, wiring)
        for other, (start, stop) in zip(layers[::-1], pairwise(first), strict=True)
    ]
    degrees = torch.cat([group[0] for group in per_group])
    position = torch.cat([group[1] for group in per_group])
    indptr = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
    row = torch.repeat_interleave(torch.arange(len(degrees), device=device), degrees)
    choice = (torch.arange(len(row), device=device) - indptr[row]) % len(wiring.offsets)
    first_new = torch.empty_like(degrees)
    for other in layers:  # input layer first, so that rows of later layers are overwritten
        first_new[: sizes[other + 1]] = sizes[other + 1]
    sources = layout.source(layout.position[row], choice, first_new[row])
    of = mb.blocks[layer]
    weight = None if of.edge_weight is None else of.edge_weight.detach()[position]
    block = Block(
        indptr,
        sources.to(of.indices.dtype),
        sizes[layer],
        sizes[layer + 1],
        edge_ids=None if of.edge_ids is None else of.edge_ids[position],
        edge_weight=None if weight is None else weight.to(dtype or weight.dtype),
        edge_type=None if of.edge_type is None else of.edge_type[position],
    )
    return block, position


def _row_edges(block: Block, row: Tensor, layout: _Layout, wiring: Wiring) -> tuple[Tensor, Tensor]:
    """Degrees of rows, and for each edge the position in a large block of the one whose attributes it has."""
    actual = block.in_degrees()
    if wiring.degrees is None:
        of = row % max(1, block.num_dst)
        degrees = actual[of].clamp(max=_MAX_DEGREE) if block.num_dst else torch.zeros_like(row)
    else:
        with_edges = actual.nonzero()[:, 0]
        of = with_edges[row % len(with_edges)] if len(with_edges) else torch.zeros_like(row)
        pattern = torch.tensor(wiring.degrees, device=row.device)
        degrees = pattern[layout.position[row] % len(pattern)] * bool(len(with_edges))
    start = degrees.cumsum(0) - degrees
    edge_row = torch.repeat_interleave(torch.arange(len(row), device=row.device), degrees)
    offset = torch.arange(len(edge_row), device=row.device) - start[edge_row]
    return degrees, block.indptr[of[edge_row]] + offset % actual[of[edge_row]].clamp(min=1)
