"""METIS on the graph among the seeds."""

import pytest
import torch

from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch import partition_batch
from workbench.partition.batch.baselines import share_among_seeds


def two_rings(order: list[int]) -> MiniBatch:
    """Seeds 0-3 and 4-7, each group a directed ring, and a source outside that all seeds read."""
    inside = {node: (node + 1) % 4 + node // 4 * 4 for node in range(8)}
    place = {node: i for i, node in enumerate(order)}
    indices = [s for node in order for s in (place[inside[node]], 8)]
    block = Block(torch.arange(0, 17, 2), torch.tensor(indices, dtype=torch.int32), 9, 8)
    return MiniBatch(torch.tensor([*order, 8]), (block,))


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5, 6, 7], [5, 0, 6, 3, 1, 4, 2, 7]])
def test_neighbouring_seeds_stay_together(order: list[int]) -> None:
    pytest.importorskip("pymetis")
    mb = two_rings(order)
    part = partition_batch(mb, 2, method="metis")
    ring = {label: {node // 4 for node, p in zip(order, part.tolist(), strict=True) if p == label} for label in (0, 1)}
    assert ring in ({0: {0}, 1: {1}}, {0: {1}, 1: {0}})


def test_share_among_seeds() -> None:
    assert share_among_seeds(two_rings(list(range(8)))) == 0.5
    assert share_among_seeds(MiniBatch(torch.arange(3), ())) == 0.0
