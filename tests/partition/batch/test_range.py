"""Range partitions: ascending ids, cut by number or weight."""

import torch

from workbench.core.minibatch import MiniBatch
from workbench.partition.batch import partition_batch


def test_ids_are_cut_in_ascending_order() -> None:
    mb = MiniBatch(torch.tensor([70, 3, 50, 1, 9, 60]), ())
    assert partition_batch(mb, 3, method="range").tolist() == [2, 0, 1, 0, 1, 2]


def test_weights_move_the_cut() -> None:
    mb = MiniBatch(torch.tensor([4, 3, 2, 1]), ())
    assert partition_batch(mb, 2, method="range", weights=torch.tensor([1, 1, 1, 3])).tolist() == [1, 1, 1, 0]
