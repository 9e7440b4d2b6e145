"""Splitting a batch into micro-batches: a part of the seeds with every edge that the batch has below them.

Betty (Yang et al., ASPLOS 2023), section 4.2: from the output block inwards a part keeps the whole rows of its
destinations; these, then the new sources, are the next block's destinations. Nothing is sampled again.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import ID_DTYPES, check_ids, check_tensors, check_vector
from workbench.core.minibatch import MiniBatch
from workbench.core.split_compiled import split_rows_compiled
from workbench.core.split_torch import split_rows_torch
from workbench.kernels.csr import group_rows


def split_batch(mb: MiniBatch, part: Tensor) -> list[MiniBatch]:
    """Cut a batch into one micro-batch a part of its seeds; gradients summed over them are those of the whole batch.

    A micro-batch holds its seeds in the order of the batch, their rows whole and in order, and sources renumbered:
    destinations first, then by first appearance. `parent` says which local id of `mb` each of its nodes was.

    Args:
        mb: the batch, on any device; without `exchanges`.
        part: int64 or int32 [num_seeds], non-negative label of every seed.

    Returns:
        A micro-batch for every label that occurs, in the order of the labels.

    Raises:
        TypeError: `part` is not an integer tensor.
        ValueError: `part` has another length or a negative label, or the batch has exchanges.

    Source: Betty (ASPLOS 2023), section 4.2.
    """
    _check_alone(mb)
    return _split(mb, *_seeds_by_part(part, mb.num_seeds))


def select_seeds(mb: MiniBatch, groups: Sequence[Tensor]) -> list[MiniBatch]:
    """The micro-batch of each group of seeds, as `split_batch` makes it; groups may overlap and leave seeds out.

    Args:
        mb: the batch, on any device; without `exchanges`.
        groups: int64 [n] each, positions of seeds, each once, in the order that they shall have.

    Raises:
        ValueError: the batch has exchanges.
        IndexError: a position that no seed has.
    """
    _check_alone(mb)
    rows = [check_ids("group", group, mb.num_seeds, unique=True) for group in groups]
    bounds = list(accumulate((len(group) for group in rows), initial=0))
    return _split(mb, torch.cat(rows), bounds) if rows else []


def _check_alone(mb: MiniBatch) -> None:
    if mb.exchanges is not None:
        raise ValueError(
            f"the batch has {len(mb.exchanges)} exchanges: its blocks read rows of other processes, so it can't be cut "
            "from one process alone; split before the batch is made cooperative"
        )


def _split(mb: MiniBatch, order: Tensor, bounds: list[int]) -> list[MiniBatch]:
    """A micro-batch of each run of seeds."""
    order = order.to(mb.device)
    micro = (split_rows_compiled if _is_compiled(mb) else split_rows_torch)(mb, order, bounds)
    shared = [layer for layer in range(1, len(mb.blocks)) if _is_row_prefix(mb.blocks[layer], mb.blocks[layer - 1])]
    return [_share_rows(m, shared) for m in micro] if shared else micro


def _is_compiled(mb: MiniBatch) -> bool:
    """Kernels see neither other devices nor autograd."""
    return mb.device.type == "cpu" and not any(
        b.edge_weight is not None and b.edge_weight.requires_grad for b in mb.blocks
    )


def _seeds_by_part(part: Tensor, num_seeds: int) -> tuple[Tensor, list[int]]:
    """Seeds grouped by label, on the CPU, and where each non-empty group begins and ends."""
    check_tensors(part=part)
    check_vector("part", part, num_seeds, ID_DTYPES)
    if not num_seeds:
        return torch.empty(0, dtype=torch.int64), [0]
    labels = part.detach().to("cpu", torch.int64).contiguous()
    low, high = (int(v) for v in torch.aminmax(labels))
    if low < 0:
        raise ValueError(f"part holds {low}; labels must not be negative (drop seeds by sampling without them)")
    if high > 4 * num_seeds + 1024:  # sparse labels: counting them would cost more than the batch
        labels = torch.unique(labels, return_inverse=True)[1]
        high = int(labels.max())
    groups = group_rows(labels, torch.arange(num_seeds), high + 1, num_seeds)
    ends = groups.indptr[1:]
    return groups.indices.to(torch.int64), [0, *ends[groups.indptr.diff() > 0].tolist()]


def _share_rows(micro: MiniBatch, layers: list[int]) -> MiniBatch:
    """Where blocks of the batch are row prefixes of one CSR, make those of its part so too: they have the same rows."""
    blocks = list(micro.blocks)
    for layer in layers:
        blocks[layer] = _row_prefix(blocks[layer - 1], blocks[layer])
    return replace(micro, blocks=tuple(blocks))


def _is_row_prefix(outer: Block, inner: Block) -> bool:
    """Whether the outer block's arrays begin where the inner's do."""
    pairs = zip(outer._tensors().values(), inner._tensors().values(), strict=True)
    return all(
        (a is None) == (b is None) and (a is None or b is None or a.data_ptr() == b.data_ptr()) for a, b in pairs
    )


def _row_prefix(inner: Block, outer: Block) -> Block:
    """The outer block with its arrays as views of the inner's."""
    views = {name: t[: outer.num_edges] for name, t in inner._tensors().items() if t is not None and name != "indptr"}
    return replace(outer, indptr=inner.indptr[: outer.num_dst + 1], **views)
