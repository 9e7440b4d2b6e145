"""Small sub-batches of a batch, of many sizes."""

import torch
from torch import Tensor

from workbench.core.minibatch import MiniBatch

_MOST_WORK = 40_000
_LEAST_WORK = 2_000
_SHARE = 1 / 16
_COUNT = 8


def sub_batches(mb: MiniBatch, *, seed: int = 0) -> list[MiniBatch]:
    """Parts of the batch, half of them on random seeds and half on seeds of neighbouring ids, smallest first.

    A part has at most a sixteenth of the batch's nodes and edges, and not more than some ten thousands, as far as a few
    seeds don't reach more. A batch of some hundreds of nodes and edges is a part itself.

    Args:
        mb: the batch.
        seed: of the random choice.
    """
    if mb.num_seeds <= 2:
        return [mb]
    generator = torch.Generator().manual_seed(seed)
    by_id = torch.argsort(mb.seeds.cpu()).roll(int(torch.randint(mb.num_seeds, (), generator=generator)))
    limit = min(_MOST_WORK, max(_LEAST_WORK, _SHARE * work(mb)))
    parts = [
        part
        for order in (torch.randperm(mb.num_seeds, generator=generator), by_id)
        for part in _ladder(mb, order, limit)
    ]
    if work(mb) <= limit:
        parts.append(mb)
    return sorted(parts, key=work)


def work(mb: MiniBatch) -> int:
    """Nodes and edges that a step goes through."""
    return sum(block.num_src + block.num_edges for block in mb.blocks)


def _ladder(mb: MiniBatch, order: Tensor, limit: float) -> list[MiniBatch]:
    """Parts of rising size up to about the limit; those beyond it are dropped, but for a few."""
    most = mb.num_seeds * min(1.0, limit / max(1, work(mb)))
    for _ in range(2):
        parts = _cut(mb, order, _rungs(most))
        kept = [part for part in parts if work(part) <= limit]
        if len(kept) >= _COUNT // 2 or not kept:
            break
        most = kept[-1].num_seeds
    return kept or parts[:2]


def _rungs(most: float) -> list[int]:
    """Whole numbers from 2 to `most`, evenly spaced by ratio."""
    ratio = max(1.0, most / 2) ** (1 / (_COUNT - 1))
    return sorted({round(2 * ratio**i) for i in range(_COUNT)})


def _cut(mb: MiniBatch, order: Tensor, sizes: list[int]) -> list[MiniBatch]:
    """The next so many seeds of an order for each part, as far as they go; at least two remain in each."""
    part = torch.full((mb.num_seeds,), len(sizes))
    begin, used = 0, 0
    for size in sizes:
        if begin + size > mb.num_seeds:
            break
        part[order[begin : begin + size]] = used
        begin, used = begin + size, used + 1
    return mb.split(part)[:used]
