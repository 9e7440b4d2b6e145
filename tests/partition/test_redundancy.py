"""Redundancy of a split, against worked examples."""

import pytest
import torch

from tests.strategies import random_minibatch
from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.partition.redundancy import Redundancy, redundancy


def test_counts_of_a_worked_example() -> None:
    """Seeds 0, 1, 2 read {3}, {3, 4} and {4}: with seed 0 in a part of its own, source 3 is loaded twice."""
    block = Block(torch.tensor([0, 1, 3, 4]), torch.tensor([3, 3, 4, 4], dtype=torch.int32), 5, 3)
    mb = MiniBatch(torch.arange(5), (block,))
    assert redundancy(mb.split(torch.tensor([0, 1, 1])), mb) == Redundancy(6, 5, 1.2, 4)


def test_one_part_has_no_redundancy() -> None:
    mb = random_minibatch()
    found = redundancy(mb.split(torch.zeros(mb.num_seeds, dtype=torch.int64)), mb)
    assert (found.ratio, found.largest) == (1.0, mb.num_inputs)


def test_no_seeds() -> None:
    mb = MiniBatch(torch.empty(0, dtype=torch.int64), ())
    assert redundancy([], mb) == Redundancy(0, 0, 1.0, 0)


def test_missing_parts_are_refused() -> None:
    mb = random_minibatch()
    with pytest.raises(ValueError, match=r"have 2 seeds, but the batch has 5"):
        redundancy(mb.split(torch.tensor([0, 0, 1, 1, 1]))[:1], mb)
