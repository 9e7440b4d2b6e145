"""Hypergraph partitions: optimal on tiny batches, by brute force, and valid on degenerate ones."""

from itertools import product

import pytest
import torch

from tests.strategies import random_graph, random_minibatch
from workbench.core.block import Block
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.batch_hypergraph import batch_hypergraph
from workbench.partition.batch.hypergraph import hypergraph_deep_parts, hypergraph_parts
from workbench.partition.batch.options import PartitionOptions
from workbench.partition.batch.random import random_parts
from workbench.partition.redundancy import redundancy

PARTITIONERS = [hypergraph_parts, hypergraph_deep_parts]
GRAPH = random_graph(300, 1500, seed=2)


@pytest.fixture(autouse=True)
def needs_mt_kahypar() -> None:
    pytest.importorskip("mtkahypar")


def least_inputs(mb: MiniBatch) -> int:
    """Return the fewest inputs of all partitions into two halves."""
    cuts = [torch.tensor(cut) for cut in product((0, 1), repeat=mb.num_seeds) if 2 * sum(cut) == mb.num_seeds]
    return min(redundancy(mb.split(cut), mb).total_inputs for cut in cuts)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("fanouts", "partitioner"), [((4,), hypergraph_parts), ((3, 2), hypergraph_deep_parts)])
def test_tiny_batches_are_partitioned_optimally(seed: int, fanouts: tuple[int, ...], partitioner) -> None:
    mb = random_minibatch(random_graph(40, 120, seed=seed), fanouts=fanouts, num_seeds=8, seed=seed)
    part = partitioner(mb, 2, PartitionOptions(seed=seed, weights=torch.ones(8)))
    assert torch.bincount(part).tolist() == [4, 4]
    assert redundancy(mb.split(part), mb).total_inputs == least_inputs(mb)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_fewer_inputs_than_at_random(partitioner) -> None:
    mb = random_minibatch(GRAPH, fanouts=(3, 5), num_seeds=120, seed=4)
    found, at_random = (
        redundancy(mb.split(p(mb, 4, PartitionOptions())), mb).total_inputs for p in (partitioner, random_parts)
    )
    assert found < at_random


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("num_parts", [2, 5])
def test_degenerate_batches(partitioner, num_parts: int) -> None:
    no_edges = Block(torch.zeros(6, dtype=torch.int64), torch.empty(0, dtype=torch.int32), 5, 5)
    hub = Block(torch.arange(6), torch.full((5,), 5, dtype=torch.int32), 6, 5)
    hub_seed = Block(torch.arange(6), torch.zeros(5, dtype=torch.int32), 5, 5)
    for mb in (
        MiniBatch(torch.arange(5), (no_edges,)),
        MiniBatch(torch.arange(6), (hub,)),
        MiniBatch(torch.arange(5), (hub_seed,)),
        MiniBatch(torch.arange(5), ()),
    ):
        assert sorted(set(partitioner(mb, num_parts, PartitionOptions()).tolist())) == list(range(num_parts))


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_weights_are_balanced_and_max_bytes_is_checked(partitioner) -> None:
    mb = random_minibatch(GRAPH, fanouts=(3, 5), num_seeds=120, seed=4)
    weights = (torch.arange(120) % 7 + 1).float()
    loads = torch.zeros(4).index_add_(0, partitioner(mb, 4, PartitionOptions(weights=weights)), weights)
    assert float(loads.max()) <= 1.12 * float(loads.mean())
    with pytest.raises(CapacityError, match=r"pins"):
        partitioner(mb, 4, PartitionOptions(max_bytes=1000))


def test_memory_grows_with_the_number_of_parts() -> None:
    """Up to the number of parts at which another preset is used."""
    mb = random_minibatch(GRAPH, fanouts=(3, 5), num_seeds=200, seed=4)
    options = PartitionOptions(max_bytes=100 * len(batch_hypergraph(mb, hops=1).pins) + 20_000)
    assert len(hypergraph_parts(mb, 8, options)) == len(hypergraph_parts(mb, 130, options)) == 200
    with pytest.raises(CapacityError, match=r"pins"):
        hypergraph_parts(mb, 100, options)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_results_are_reproducible(partitioner) -> None:
    mb = random_minibatch(GRAPH, fanouts=(3, 5), num_seeds=200, seed=4)
    runs = [tuple(partitioner(mb, 6, PartitionOptions(seed=seed)).tolist()) for seed in (0, 1, 1, 0)]
    assert runs[:2] == runs[:1:-1] and runs[0] != runs[1]
