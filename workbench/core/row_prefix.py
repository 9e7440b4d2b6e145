"""Blocks that are row prefixes of one CSR: in a batch where every node has one sample for all layers.

That is so in a DENSE sample and its micro-batches, in full neighbourhoods that were sampled that way, and in batches of
PyG's `NeighborLoader`. The blocks are views, which share storage and what layers derive from it.
"""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from workbench.core.block import Block, SharedRows
from workbench.core.shared_storage import same_record


def first_rows(whole: Block, num_src: int, num_dst: int) -> Block:
    """Return a block of the first rows of a valid block, whose arrays are views of its; nothing is checked again.

    Args:
        whole: the block.
        num_src: number of sources, all that the rows have.
        num_dst: number of rows.
    """
    indptr = whole.indptr.numpy() if whole.device.type == "cpu" else whole.indptr  # NumPy reads a value faster
    end = int(indptr[num_dst])
    views = {name: t[:end] for name, t in whole._tensors().items() if t is not None}
    views["indptr"] = whole.indptr[: num_dst + 1]
    return same_record(whole, **views, num_src=num_src, num_dst=num_dst)


def is_row_prefix(outer: Block, inner: Block) -> bool:
    """Return whether a block's rows are the first rows of another one in the same memory.

    Args:
        outer: the block with fewer rows.
        inner: the block with more rows.
    """
    if outer.num_dst > inner.num_dst:
        return False
    pairs = zip(outer._tensors().values(), inner._tensors().values(), strict=True)
    return all((a is None) == (b is None) and (a is None or b is None or _begin_together(a, b)) for a, b in pairs)


def _begin_together(a: Tensor, b: Tensor) -> bool:
    """Return whether both are views of one storage from the same element on."""
    return a.storage_offset() == b.storage_offset() and a.untyped_storage()._cdata == b.untyped_storage()._cdata


def row_prefixes(blocks: Sequence[Block]) -> list[bool]:
    """Return for each block whether its rows are the first rows of the block before it.

    Args:
        blocks: input layer first.
    """
    return [False, *(is_row_prefix(outer, inner) for inner, outer in pairwise(blocks))][: len(blocks)]


def share_rows(blocks: Sequence[Block]) -> None:
    """Let new blocks that are row prefixes of one CSR derive their destinations and transposes once for all.

    Args:
        blocks: input layer first; blocks that share with others already keep doing so.
    """
    group: list[Block] = []
    for block in blocks:
        if "shared_rows" in block.__dict__:
            continue
        if group and not is_row_prefix(block, group[-1]):
            _connect(group)
            group = []
        group.append(block)
    _connect(group)


def _connect(group: list[Block]) -> None:
    if len(group) > 1:
        shared = SharedRows(group)
        for block in group:
            block.__dict__["shared_rows"] = shared
