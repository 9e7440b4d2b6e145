"""Cluster partitions: labels of the seeds, and packed clusters."""

import pytest
import torch

from workbench.core.minibatch import MiniBatch
from workbench.partition.batch import partition_batch

MB = MiniBatch(torch.tensor([6, 1, 3, 5]), ())


def cluster(node_parts: list[int], num_parts: int, weights: torch.Tensor | None = None) -> list[int]:
    labels = torch.tensor(node_parts)
    return partition_batch(MB, num_parts, method="cluster", node_parts=labels, weights=weights).tolist()


def test_parts_are_the_labels_of_the_seeds() -> None:
    assert cluster([9, 0, 9, 1, 9, 0, 2], 3) == [2, 0, 1, 0]


def test_labels_that_no_seed_has_leave_parts_empty() -> None:
    assert cluster([9, 0, 9, 3, 9, 0, 3], 4) == [3, 0, 3, 0]


def test_more_clusters_than_parts_are_packed_whole() -> None:
    first, second, third, fourth = cluster([0, 7, 0, 8, 0, 7, 5], 2)
    assert second == fourth != first == third


def test_packing_balances_weights() -> None:
    parts = cluster([0, 7, 0, 8, 0, 7, 5], 2, weights=torch.tensor([4, 1, 1, 1]))
    assert parts[0] not in parts[1:]
    assert len(set(parts[1:])) == 1


def test_bad_partitions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"node_parts is not given; method 'cluster' requires node_parts"):
        partition_batch(MB, 2, method="cluster")
    with pytest.raises(IndexError, match=r"has 5 labels, but the batch has seed 6"):
        cluster([0, 1, 0, 1, 0], 2)
    with pytest.raises(TypeError, match=r"node_parts must be a tensor of torch.int64"):
        partition_batch(MB, 2, method="cluster", node_parts=torch.rand(7))
    with pytest.raises(ValueError, match=r"node_parts is -1 for a seed"):
        cluster([0, -1, 0, 0, 0, 0, 0], 2)
