"""Small sub-batches of a batch, of many different sizes, to trace training steps on."""

from collections.abc import Callable

import torch
from torch import Tensor

from workbench.core.minibatch import MiniBatch

# Limits on the work (nodes and edges) of a sub-batch.
_MAX_WORK = 16_000
_MIN_LIMIT = 8_000
_ALL_DEGREES_LIMIT = 16_000
_FRACTION = 1 / 16

_COUNT = 8  # sub-batches of each kind
_MIN_SEEDS = 4
_MAX_TRIES = 3
_MIN_PER_DEGREE = 2

_SelectSeeds = Callable[[int], Tensor]
"""Maps a number of seeds to that many seed positions."""


def sub_batches(mb: MiniBatch, *, seed: int = 0) -> list[MiniBatch]:
    """Sub-batches of the batch, half of them of random seeds and half of seeds with consecutive ids, smallest first.

    Random sub-batches with enough seeds contain destinations of the smallest and largest in-degree of every block,
    which separates sizes that would otherwise be equal (destinations, and destinations with in-edges).

    A sub-batch has at most a sixteenth of the batch's nodes and edges and at most some ten thousands, unless a few
    seeds alone reach more. A batch of a few thousand nodes and edges is one of its own sub-batches.

    Args:
        mb: the batch.
        seed: seed of the random choice.
    """
    if mb.num_seeds <= _MIN_SEEDS:
        return [mb]
    generator = torch.Generator().manual_seed(seed)
    by_id, seeds_and_degrees = torch.argsort(mb.seeds.cpu()), _destination_seeds(mb)

    def consecutive(count: int) -> Tensor:
        begin = int(torch.randint(mb.num_seeds - count + 1, (), generator=generator))
        return by_id[begin : begin + count]

    def scattered(count: int) -> Tensor:
        extremes = [
            _choose_one(seeds[degrees == extreme], generator)
            for seeds, degrees in seeds_and_degrees
            for extreme in torch.aminmax(degrees)
        ]
        order = torch.randperm(mb.num_seeds, generator=generator)
        required = torch.cat([order[:0], *extremes]) if len(extremes) <= count else order[:0]
        return _fill_up(required, order, count)

    limit = _work_limit(mb)
    parts = _growing(mb, scattered, _MIN_SEEDS, limit) + _growing(mb, consecutive, _MIN_SEEDS, limit)
    if work(mb) <= limit:
        parts.append(mb)
    return sorted(parts if len(parts) >= _COUNT else parts + _smallest(mb, scattered), key=work)


def batches_of_all_degrees(mb: MiniBatch, *, seed: int = 0) -> list[MiniBatch]:
    """Sub-batches in which every block has at least two destinations of each in-degree that it has in the batch.

    An in-degree of a single destination occurs once. Returns an empty list if such sub-batches are too large.

    Args:
        mb: the batch.
        seed: seed of the random choice.
    """
    generator = torch.Generator().manual_seed(seed)
    seeds_and_degrees = _destination_seeds(mb)

    def stratified(count: int) -> Tensor:
        required = torch.cat([seeds[_some_per_degree(degrees, generator)] for seeds, degrees in seeds_and_degrees])
        return _fill_up(required, torch.randperm(mb.num_seeds, generator=generator), count)

    fewest = max(len(stratified(0)) for _ in range(_MAX_TRIES))
    limit = max(_work_limit(mb), _ALL_DEGREES_LIMIT)
    return _growing(mb, stratified, fewest, limit) + _growing(mb, stratified, fewest, limit)


def _destination_seeds(mb: MiniBatch) -> list[tuple[Tensor, Tensor]]:
    """For each block, output layer first, per destination: a seed that reaches it, and its in-degree."""
    seeds, pairs = torch.arange(mb.num_seeds), []
    for block in reversed(mb.blocks):
        pairs.append((seeds, block.in_degrees().cpu()))
        of_source = torch.full((block.num_src,), mb.num_seeds)
        of_edge = seeds[block.destinations.long().cpu()]
        of_source.scatter_reduce_(0, block.indices.long().cpu(), of_edge, "amin")  # the first, for any thread count
        of_source[: block.num_dst] = seeds
        seeds = of_source
    return pairs


def _fill_up(required: Tensor, order: Tensor, count: int) -> Tensor:
    """The distinct required positions, filled up to `count` in the given order."""
    required = required.unique()
    return torch.cat([required, order[~torch.isin(order, required)]])[: max(count, len(required))]


def _choose_one(values: Tensor, generator: torch.Generator) -> Tensor:
    return values[torch.randint(len(values), (1,), generator=generator)]


def _some_per_degree(degrees: Tensor, generator: torch.Generator) -> Tensor:
    """Random positions of two to four destinations per in-degree, or of all if there are fewer."""
    order = torch.randperm(len(degrees), generator=generator)
    order = order[torch.argsort(degrees[order], stable=True)]
    ascending = degrees[order]
    counts = torch.randint(_MIN_PER_DEGREE, 2 * _MIN_PER_DEGREE + 1, (int(ascending[-1]) + 1,), generator=generator)
    return order[torch.arange(len(degrees)) - torch.searchsorted(ascending, ascending) < counts[ascending]]


def work(mb: MiniBatch) -> int:
    """Number of nodes and edges that a step processes, over all blocks."""
    return sum(block.num_src + block.num_edges for block in mb.blocks)


def _work_limit(mb: MiniBatch) -> float:
    return min(_MAX_WORK, max(_MIN_LIMIT, _FRACTION * work(mb)))


def _growing(mb: MiniBatch, select_seeds: _SelectSeeds, fewest: int, limit: float) -> list[MiniBatch]:
    """Sub-batches with growing numbers of seeds up to about the work limit, without those that exceed it."""
    most = max(fewest, int(mb.num_seeds * min(1.0, limit / max(1, work(mb)))))
    within_limit: list[MiniBatch] = []
    for _ in range(_MAX_TRIES):
        parts = mb.select([select_seeds(count).sort().values for count in _geometric(fewest, most)])
        within_limit = [part for part in parts if work(part) <= limit]
        if 2 * len(within_limit) > _COUNT:
            break
        most = max([fewest, *(part.num_seeds for part in within_limit)])
    return within_limit


def _smallest(mb: MiniBatch, select_seeds: _SelectSeeds) -> list[MiniBatch]:
    """Sub-batches of two to four seeds, of any size, since a fit needs several sub-batches."""
    return mb.select([select_seeds(count).sort().values for count in (2, 3, 4) for _ in range(_COUNT // 2)])


def _geometric(first: int, last: int) -> list[int]:
    """Whole numbers spaced evenly by ratio."""
    ratio = (last / first) ** (1 / (_COUNT - 1))
    return [round(first * ratio**i) for i in range(_COUNT)]
