"""Which nodes train, validate and test: the public split, or a seeded one where none is published."""

import torch
from torch import Tensor

from workbench.core.randomness import Purpose, stream, uniform
from workbench.datasets.raw import RawSet, Split

SHARES = (0.6, 0.2, 0.2)


def choose_split(raw: RawSet, y: Tensor, *, number: int, seed: int) -> tuple[Split, str]:
    """A split and where it comes from.

    Args:
        raw: the set.
        y: its labels.
        number: which of several public splits.
        seed: of the split where none is public.

    Raises:
        ValueError: a number that no split has.
    """
    if number and number >= len(raw.splits):
        raise ValueError(f"split is {number}; this set has {len(raw.splits)} public splits, numbered from 0")
    if not raw.splits:
        return stratified_split(y, seed), f"seeded:{seed}"
    return raw.splits[number], "public" if len(raw.splits) == 1 else f"public:{number}"


def stratified_split(y: Tensor, seed: int) -> Split:
    """60 % of each class to train, 20 % to validate, 20 % to test, in an order that only the seed decides.

    Args:
        y: int64 [num_nodes], −1 for unlabelled nodes, which are left out unless all are; or floating [num_nodes, any],
            split as one class.
        seed: any whole number.

    >>> [len(ids) for ids in stratified_split(torch.zeros(10, dtype=torch.int64), 0)]
    [6, 2, 2]
    """
    is_one_class = y.is_floating_point() or not bool((y >= 0).any())
    label = torch.zeros(y.shape[0], dtype=torch.int64) if is_one_class else y
    node = (label >= 0).nonzero().squeeze(1)
    node = node[torch.argsort(uniform(stream(seed, Purpose.SPLIT), node), stable=True)]
    node = node[torch.argsort(label[node], stable=True)]
    _, counts = torch.unique_consecutive(label[node], return_counts=True)
    size = torch.repeat_interleave(counts, counts)
    rank = torch.arange(len(node)) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    place = (rank + 0.5) / size
    part = (place >= SHARES[0]).long() + (place >= SHARES[0] + SHARES[1]).long()
    return Split(*(node[part == p].sort().values for p in range(3)))
