"""Small sub-batches of a batch, of many sizes."""

from collections.abc import Callable

import torch
from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.core.split import select_seeds

_MOST_WORK = 16_000
_LEAST_WORK = 8_000
_FOR_ALL_DEGREES = 16_000
_SHARE = 1 / 16
_COUNT = 8
_LEAST_SEEDS = 4
_TRIES = 3
_OF_A_DEGREE = 2

_Pick = Callable[[int], Tensor]
"""From a number of seeds so many positions of seeds."""


def sub_batches(mb: MiniBatch, *, seed: int = 0) -> list[MiniBatch]:
    """Parts of the batch, half of them of random seeds and half of seeds with neighbouring ids, smallest first.

    Random parts of some seeds have destinations of the least and the largest in-degree of every block: sizes that are
    equal without (destinations, and those with in-edges) are told apart.

    A part has at most a sixteenth of the batch's nodes and edges, and not more than some ten thousands, unless a
    few seeds reach more. A batch of some thousands of nodes and edges is a part itself.

    Args:
        mb: the batch.
        seed: of the random choice.
    """
    if mb.num_seeds <= _LEAST_SEEDS:
        return [mb]
    generator = torch.Generator().manual_seed(seed)
    by_id, pairs = torch.argsort(mb.seeds.cpu()), _seeds_above(mb)

    def neighbours(count: int) -> Tensor:
        begin = int(torch.randint(mb.num_seeds - count + 1, (), generator=generator))
        return by_id[begin : begin + count]

    def scattered(count: int) -> Tensor:
        ends = [_one_of(seeds[d == end], generator) for seeds, d in pairs for end in torch.aminmax(d)]
        order = torch.randperm(mb.num_seeds, generator=generator)
        return _first_then(torch.cat([order[:0], *ends]) if len(ends) <= count else order[:0], order, count)

    limit = _limit(mb)
    parts = _ladder(mb, scattered, _LEAST_SEEDS, limit) + _ladder(mb, neighbours, _LEAST_SEEDS, limit)
    if work(mb) <= limit:
        parts.append(mb)
    return sorted(parts if len(parts) >= _COUNT else parts + _smallest(mb, scattered), key=work)


def batches_of_all_degrees(mb: MiniBatch, *, seed: int = 0) -> list[MiniBatch]:
    """Parts of the batch in which every block has two destinations or more of every in-degree that it has in the batch,
    as far as there are two; none where these reach too much.

    Args:
        mb: the batch.
        seed: of the random choice.
    """
    generator = torch.Generator().manual_seed(seed)
    pairs = _seeds_above(mb)

    def stratified(count: int) -> Tensor:
        first = torch.cat([seeds[_some_of_each(degrees, generator)] for seeds, degrees in pairs])
        return _first_then(first, torch.randperm(mb.num_seeds, generator=generator), count)

    fewest = max(len(stratified(0)) for _ in range(_TRIES))
    limit = max(_limit(mb), _FOR_ALL_DEGREES)
    return _ladder(mb, stratified, fewest, limit) + _ladder(mb, stratified, fewest, limit)


def _seeds_above(mb: MiniBatch) -> list[tuple[Tensor, Tensor]]:
    """For each block a seed that reaches each destination, and its in-degree."""
    seeds, pairs = torch.arange(mb.num_seeds), []
    for block in reversed(mb.blocks):
        pairs.append((seeds, block.in_degrees().cpu()))
        of_source = torch.full((block.num_src,), mb.num_seeds)
        reached = seeds[block.destinations.long().cpu()]
        of_source.scatter_reduce_(0, block.indices.long().cpu(), reached, "amin")  # the first, whatever the threads
        of_source[: block.num_dst] = seeds
        seeds = of_source
    return pairs


def _first_then(first: Tensor, order: Tensor, count: int) -> Tensor:
    """So many values of `order`, or those of `first` where they are more, these included."""
    first = first.unique()
    return torch.cat([first, order[~torch.isin(order, first)]])[: max(count, len(first))]


def _one_of(values: Tensor, generator: torch.Generator) -> Tensor:
    return values[torch.randint(len(values), (1,), generator=generator)]


def _some_of_each(values: Tensor, generator: torch.Generator) -> Tensor:
    """Positions of two to four of each value, where there are so many, chosen at random."""
    order = torch.randperm(len(values), generator=generator)
    order = order[torch.argsort(values[order], stable=True)]
    rising = values[order]
    wanted = torch.randint(_OF_A_DEGREE, 2 * _OF_A_DEGREE + 1, (int(rising[-1]) + 1,), generator=generator)
    return order[torch.arange(len(values)) - torch.searchsorted(rising, rising) < wanted[rising]]


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


def _smallest(mb: MiniBatch, pick: _Pick) -> list[MiniBatch]:
    """Parts of a few seeds, whatever these reach: without several parts nothing is learnt."""
    return select_seeds(mb, [pick(count).sort().values for count in (2, 3, 4) for _ in range(_COUNT // 2)])


def _rungs(least: int, most: int) -> list[int]:
    """Whole numbers evenly spaced by ratio."""
    ratio = (most / least) ** (1 / (_COUNT - 1))
    return [round(least * ratio**i) for i in range(_COUNT)]
