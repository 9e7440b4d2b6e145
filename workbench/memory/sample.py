"""Small sub-batches of a batch, of many sizes."""

from collections.abc import Callable

import torch
from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.core.split import select_seeds

_MOST_WORK = 40_000
_LEAST_WORK = 8_000
_FOR_ALL_DEGREES = 16_000
_SHARE = 1 / 16
_COUNT = 6
_TRIES = 3
_OF_A_DEGREE = 2

_Pick = Callable[[int], Tensor]
"""From a number of seeds so many positions of seeds."""


def sub_batches(mb: MiniBatch, *, seed: int = 0) -> list[MiniBatch]:
    """Parts of the batch, half of them of random seeds and half of seeds with neighbouring ids, smallest first.

    A part has at most a sixteenth of the batch's nodes and edges, and not more than some ten thousands, as far as two
    seeds don't reach more. A batch of some thousands of nodes and edges is a part itself.

    Args:
        mb: the batch.
        seed: of the random choice.
    """
    if mb.num_seeds <= 2:
        return [mb]
    generator = torch.Generator().manual_seed(seed)
    by_id = torch.argsort(mb.seeds.cpu())

    def neighbours(count: int) -> Tensor:
        begin = int(torch.randint(mb.num_seeds - count + 1, (), generator=generator))
        return by_id[begin : begin + count]

    def scattered(count: int) -> Tensor:
        return torch.randperm(mb.num_seeds, generator=generator)[:count]

    limit = _limit(mb)
    parts = _ladder(mb, scattered, 2, limit) + _ladder(mb, neighbours, 2, limit)
    if work(mb) <= limit:
        parts.append(mb)
    return sorted(parts or select_seeds(mb, [scattered(2)]), key=work)


def batches_of_all_degrees(mb: MiniBatch, *, seed: int = 0) -> list[MiniBatch]:
    """Parts of the batch in which every block has two destinations or more of every in-degree that it has in the batch,
    as far as there are two; none where these reach too much.

    Args:
        mb: the batch.
        seed: of the random choice.
    """
    generator = torch.Generator().manual_seed(seed)
    above = _seeds_above(mb)
    degrees = [block.in_degrees().cpu() for block in mb.blocks]

    def stratified(count: int) -> Tensor:
        pairs = zip(above, degrees, strict=True)
        first = torch.cat([seeds[_some_of_each(values, generator)] for seeds, values in pairs]).unique()
        order = torch.randperm(mb.num_seeds, generator=generator)
        return torch.cat([first, order[~torch.isin(order, first)]])[: max(count, len(first))]

    fewest = len(stratified(0))
    limit = max(_limit(mb), _FOR_ALL_DEGREES)
    return _ladder(mb, stratified, fewest, limit) + _ladder(mb, stratified, fewest, limit)


def _seeds_above(mb: MiniBatch) -> list[Tensor]:
    """For each block a seed that reaches each destination."""
    above = [torch.arange(mb.num_seeds)]
    for block in reversed(mb.blocks[1:]):
        of_source = torch.empty(block.num_src, dtype=torch.int64)
        of_source[block.indices.long().cpu()] = above[0][block.destinations.long().cpu()]
        of_source[: block.num_dst] = above[0]
        above.insert(0, of_source)
    return above


def _some_of_each(values: Tensor, generator: torch.Generator) -> Tensor:
    """Positions of two of each value, where there are two, chosen at random."""
    order = torch.randperm(len(values), generator=generator)
    order = order[torch.argsort(values[order], stable=True)]
    rising = values[order]
    return order[torch.arange(len(values)) - torch.searchsorted(rising, rising) < _OF_A_DEGREE]


def work(mb: MiniBatch) -> int:
    """Nodes and edges that a step goes through."""
    return sum(block.num_src + block.num_edges for block in mb.blocks)


def _limit(mb: MiniBatch) -> float:
    return min(_MOST_WORK, max(_LEAST_WORK, _SHARE * work(mb)))


def _ladder(mb: MiniBatch, pick: _Pick, least: int, limit: float) -> list[MiniBatch]:
    """Parts of rising numbers of seeds up to about the limit; no more than a few where all but those exceed it."""
    most = max(least, int(mb.num_seeds * min(1.0, limit / max(1, work(mb)))))
    kept: list[MiniBatch] = []
    for _ in range(_TRIES):
        parts = select_seeds(mb, [pick(count).sort().values for count in _rungs(least, most)])
        kept = [part for part in parts if work(part) <= limit]
        if 2 * len(kept) > _COUNT:
            break
        most = max([least, *(part.num_seeds for part in kept)])
    return kept


def _rungs(least: int, most: int) -> list[int]:
    """Whole numbers evenly spaced by ratio."""
    ratio = (most / least) ** (1 / (_COUNT - 1))
    return sorted({round(least * ratio**i) for i in range(_COUNT)})
