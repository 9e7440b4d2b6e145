"""Output nodes each on its own: no cut of a batch has parts smaller than these."""

import torch
from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.memory.planning.cut import Cut, Cutter
from workbench.memory.planning.room import Room

_FEW, _MANY, _MOST = 32, 512, 4096
_EDGES_AT_ONCE, _EDGES_IN_ALL = 2**24, 2**27  # read for seeds on their own, however large their trees


def too_needy(cutter: Cutter, mb: MiniBatch, room: Room) -> bool:
    """Whether it takes a look at the neediest seeds, and no partition, to know that nothing fits.

    All parts but the first find gradients of others, so the seeds that then do not fit must be in the first, together.

    Args:
        cutter: of parts.
        mb: a batch that does not fit whole.
        room: that each part must fit into.
    """
    if mb.num_seeds == 1:
        return True
    _, few = next(_by_tree(mb))
    alone = cutter.each_alone(mb, few)
    needy = torch.tensor([not room.fits(estimate) for estimate in alone.estimates])
    return bool(needy.any()) and not room.fits(cutter.first_part(mb, few[needy]).estimates[0])


def neediest_alone(cutter: Cutter, mb: MiniBatch) -> Cut:
    """The seed that needs most on its own after other parts, as a cut of one part.

    Args:
        cutter: of parts.
        mb: the batch, of one seed or more. Of far more than 4,096 seeds only those with the largest trees are looked
            at, unless it is clear before that no other has more nodes.
    """
    if mb.num_seeds == 1:
        return cutter.whole(mb)
    neediest: list[Cut] = []
    for largest_tree, seeds in _by_tree(mb):
        if neediest and largest_tree < neediest[0].micro[0].num_inputs:
            break
        alone = cutter.each_alone(mb, seeds)
        if not neediest or alone.peak_bytes > neediest[0].peak_bytes:
            neediest = [Cut((alone.micro[alone.largest],), (alone.estimates[alone.largest],))]
    return neediest[0]


def _by_tree(mb: MiniBatch):
    """Positions of seeds, those with the largest trees first, some at a time, with the edges of the largest tree."""
    trees, order = tree_edges(mb).sort(descending=True, stable=True)
    most_read = trees.clamp(max=mb.num_edges).clamp_(min=1)
    begin, number, read = 0, _FEW, 0
    while begin < min(mb.num_seeds, _MOST) and read < _EDGES_IN_ALL:
        end = begin + max(1, min(number, int(_EDGES_AT_ONCE // most_read[begin])))
        yield int(trees[begin]), order[begin:end]
        read += int(most_read[begin:end].sum())
        begin, number = end, min(2 * number, _MANY)


def tree_edges(mb: MiniBatch) -> Tensor:
    """float64 [num_seeds]: edges of each seed's tree in all blocks, those that are reached twice counted twice.

    >>> from workbench.core.block import Block
    >>> block = Block(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1], dtype=torch.int32), num_src=2, num_dst=2)
    >>> tree_edges(MiniBatch(torch.tensor([7, 8]), (block, block))).tolist()
    [7.0, 3.0]
    """
    below = torch.zeros(mb.num_inputs, dtype=torch.float64)
    for block in mb.blocks:
        ends = torch.zeros(block.num_edges + 1, dtype=torch.float64)
        torch.cumsum(1 + below[block.indices.cpu().long()], 0, out=ends[1:])
        below = below[: block.num_dst] + ends[block.indptr.cpu()].diff()  # a destination is a source of its own too
    return below
