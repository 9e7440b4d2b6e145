"""Hypergraph partitions: optimal on tiny batches, by brute force, and valid on degenerate ones."""

from itertools import product

import pytest
import torch

from tests.strategies import random_graph, random_minibatch
from workbench.core.block import Block
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch import Partitioner, partition_batch
from workbench.partition.batch.hypergraph import batch_hypergraph
from workbench.partition.redundancy import redundancy

METHODS = ["hypergraph", "hypergraph_deep"]
GRAPH = random_graph(300, 1500, seed=2)


@pytest.fixture(autouse=True)
def needs_mt_kahypar() -> None:
    pytest.importorskip("mtkahypar")


def least_inputs(mb: MiniBatch) -> int:
    """Return the fewest inputs of all partitions into two halves."""
    cuts = [torch.tensor(cut) for cut in product((0, 1), repeat=mb.num_seeds) if 2 * sum(cut) == mb.num_seeds]
    return min(redundancy(mb.split(cut), mb).total_inputs for cut in cuts)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("fanouts", "method"), [((4,), "hypergraph"), ((3, 2), "hypergraph_deep")])
def test_tiny_batches_are_partitioned_optimally(seed: int, fanouts: tuple[int, ...], method: str) -> None:
    mb = random_minibatch(random_graph(40, 120, seed=seed), fanouts=fanouts, num_seeds=8, seed=seed)
    part = partition_batch(mb, 2, method=method, seed=seed, weights=torch.ones(8))
    assert torch.bincount(part).tolist() == [4, 4]
    assert redundancy(mb.split(part), mb).total_inputs == least_inputs(mb)


@pytest.mark.parametrize("method", METHODS)
def test_fewer_inputs_than_at_random(method: str) -> None:
    mb = random_minibatch(GRAPH, fanouts=(3, 5), num_seeds=120, seed=4)
    found, at_random = (
        redundancy(mb.split(partition_batch(mb, 4, method=name)), mb).total_inputs for name in (method, "random")
    )
    assert found < at_random


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_parts", [2, 5])
def test_degenerate_batches(method: str, num_parts: int) -> None:
    no_edges = Block(torch.zeros(6, dtype=torch.int64), torch.empty(0, dtype=torch.int32), 5, 5)
    hub = Block(torch.arange(6), torch.full((5,), 5, dtype=torch.int32), 6, 5)
    hub_seed = Block(torch.arange(6), torch.zeros(5, dtype=torch.int32), 5, 5)
    for mb in (
        MiniBatch(torch.arange(5), (no_edges,)),
        MiniBatch(torch.arange(6), (hub,)),
        MiniBatch(torch.arange(5), (hub_seed,)),
        MiniBatch(torch.arange(5), ()),
    ):
        assert sorted(set(partition_batch(mb, num_parts, method=method).tolist())) == list(range(num_parts))


@pytest.mark.parametrize("method", METHODS)
def test_weights_are_balanced_and_max_bytes_is_checked(method: str) -> None:
    mb = random_minibatch(GRAPH, fanouts=(3, 5), num_seeds=120, seed=4)
    weights = (torch.arange(120) % 7 + 1).float()
    loads = torch.zeros(4).index_add_(0, partition_batch(mb, 4, method=method, weights=weights), weights)
    assert float(loads.max()) <= 1.12 * float(loads.mean())
    with pytest.raises(CapacityError, match=r"pins"):
        partition_batch(mb, 4, method=method, max_bytes=1000)


def test_memory_grows_with_the_number_of_parts() -> None:
    """Up to the number of parts at which another preset is used."""
    mb = random_minibatch(GRAPH, fanouts=(3, 5), num_seeds=200, seed=4)
    max_bytes = 100 * len(batch_hypergraph(mb, hops=1).pins) + 20_000
    prepared = Partitioner("hypergraph", max_bytes=max_bytes).prepare(mb)
    assert len(prepared.cut(8).assignment) == len(prepared.cut(130).assignment) == 200
    with pytest.raises(CapacityError, match=r"pins"):
        prepared.cut(100)


@pytest.mark.parametrize("method", METHODS)
def test_results_are_reproducible(method: str) -> None:
    mb = random_minibatch(GRAPH, fanouts=(3, 5), num_seeds=200, seed=4)
    runs = [tuple(partition_batch(mb, 6, method=method, seed=seed).tolist()) for seed in (0, 1, 1, 0)]
    assert runs[:2] == runs[:1:-1] and runs[0] != runs[1]
