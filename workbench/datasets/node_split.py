"""Splits into training, validation and test nodes: the public split, or a seeded one if none is published."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor

from workbench.core.errors import DataError
from workbench.core.randomness import Purpose, stream, uniform
from workbench.datasets.raw import RawSet, Split

SHARES = (0.6, 0.2, 0.2)


def check_disjoint(split: Split, names: Sequence[str], file: Path) -> None:
    """Check that no node is in two parts of a split.

    Args:
        split: parts, each without duplicates.
        names: names of the parts, for the message.
        file: the file that contains the split, for the message.

    Raises:
        DataError: with the parts and the node that both contain.
    """
    for (first, ids), (second, others) in combinations(zip(names, split, strict=True), 2):
        if len(shared := ids[torch.isin(ids, others)]):
            raise DataError(f"{file}: {first} and {second} both contain node {int(shared[0])}; remove it from one")


def choose_split(raw: RawSet, y: Tensor, *, number: int, seed: int) -> tuple[Split, str]:
    """Choose a public split, or create a seeded one.

    Args:
        raw: the data set as stored.
        y: its labels.
        number: number of the public split, from 0.
        seed: seed of the split if none is public.

    Returns:
        The split, and its origin: "public", "public:NUMBER" or "seeded:SEED".

    Raises:
        ValueError: there is no public split of this number.
    """
    if number and number >= len(raw.splits):
        raise ValueError(f"split is {number}; this data set has {len(raw.splits)} public splits, numbered from 0")
    if not raw.splits:
        return stratified_split(y, seed), f"seeded:{seed}"
    return raw.splits[number], "public" if len(raw.splits) == 1 else f"public:{number}"


def stratified_split(y: Tensor, seed: int) -> Split:
    """Draw a stratified split: 60 % of each class for training, 20 % for validation, 20 % for test.

    Args:
        y: int64 [num_nodes], -1 for unlabelled nodes, which are in no part unless all are unlabelled; or floating
            [num_nodes, any], treated as one class.
        seed: a 64-bit integer.

    Returns:
        The split, ids ascending.

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
    quantile = (rank + 0.5) / size
    part = (quantile >= SHARES[0]).long() + (quantile >= SHARES[0] + SHARES[1]).long()
    return Split(*(node[part == p].sort().values for p in range(3)))
