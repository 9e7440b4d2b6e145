"""Miss rates of a cache under dependent batches, those of DGL's `LaborSampler(batch_dependency=)`, on real graphs."""

from collections.abc import Callable, Iterator

import pytest
from torch import Tensor

import workbench as wb
from workbench.core.randomness import Purpose, permutation, stream

FANOUTS, BATCH_SIZE, SEEDS = [10, 10, 10], 128, 3
WARM_UP, MEASURED = 100, 200  # batches, at least; a warm-up lasts κ batches, and 4κ are measured


def batches_of(ids: Tensor, count: int, seed: int) -> Iterator[Tensor]:
    """Yield the seeds of `count` batches, through as many epochs as needed."""
    per_epoch = len(ids) // BATCH_SIZE
    for step in range(count):
        epoch, batch = divmod(step, per_epoch)
        if batch == 0:
            order = ids[permutation(stream(seed, Purpose.SHUFFLE, epoch), len(ids))]
        yield order[batch * BATCH_SIZE : (batch + 1) * BATCH_SIZE]


def dgl_inputs(graph: wb.Graph, kappa: int, seed: int) -> Callable[[Tensor, int], Tensor]:
    dgl = pytest.importorskip("dgl")
    theirs, sampler = graph.to_dgl(), dgl.dataloading.LaborSampler(FANOUTS, batch_dependency=kappa)
    sampler.set_seed(seed)
    return lambda seeds, step: sampler.sample_blocks(theirs, seeds)[0]


def our_inputs(graph: wb.Graph, kappa: int, seed: int) -> Callable[[Tensor, int], Tensor]:
    sampler = wb.LaborSampler(FANOUTS, seed=seed, dependence=wb.Smoothed(kappa))
    return lambda seeds, step: sampler.sample(graph, seeds, step=step).node_ids


@pytest.mark.slow
@pytest.mark.parametrize("kappa", [1, 4, 16, 64, 256])
@pytest.mark.parametrize("name", ["ogbn-arxiv", "dblp-2010"])
def test_miss_rates_are_those_of_dgl(name: str, kappa: int) -> None:
    """The same seeds in the same order, an LRU cache of 10 % of the rows: within one point, for each of three seeds."""
    try:
        data = wb.load_dataset(name)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    warm_up, capacity = max(kappa, WARM_UP), data.graph.num_nodes // 10
    count = warm_up + max(4 * kappa, MEASURED)
    for seed in range(SEEDS):
        rates = []
        for inputs in (our_inputs, dgl_inputs):
            draw = inputs(data.graph, kappa, seed)
            reads = (draw(seeds, step) for step, seeds in enumerate(batches_of(data.train_idx, count, seed)))
            rates.append(wb.features.simulate_cache(wb.AccessTrace.of(reads), capacity, warmup=warm_up).miss_rate)
        assert abs(rates[0] - rates[1]) <= 0.01
