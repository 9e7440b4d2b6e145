"""Reach counts: against batches sampled seed by seed, and numba against torch."""

import pytest
import torch
from hypothesis import given, strategies as st

import workbench as wb
from tests.strategies import examples, random_graph, random_minibatch
from workbench.cooperative.sampling import reach_counts_torch

GRAPH = random_graph(60, 240)
SEEDS = torch.arange(60)[1::4]


@pytest.mark.parametrize("fanouts", [[2], [2, 3], [1, -1, 2]])
def test_each_seed_alone_reaches_what_is_counted(fanouts):
    sampler = wb.NeighborSampler(fanouts, seed=3)
    batch = sampler.sample(GRAPH, SEEDS, step=5)
    expected = torch.zeros(60, dtype=torch.int64)
    for seed in SEEDS:
        expected[sampler.sample(GRAPH, seed[None], step=5).node_ids] += 1
    assert wb.cooperative.reach_counts(batch).tolist() == expected[batch.node_ids].tolist()


def test_an_item_reaches_what_any_of_its_seeds_does():
    sampler = wb.NeighborSampler([2, 2], seed=1)
    batch = sampler.sample(GRAPH, SEEDS, step=2)
    items = torch.tensor([[0, 1, 1], [1, 2, 3], [5, 0, 7], [9, 9, 9]], dtype=torch.int32)
    expected = torch.zeros(60, dtype=torch.int64)
    for item in items.long():
        expected[sampler.sample(GRAPH, SEEDS[item].unique(), step=2).node_ids] += 1
    assert wb.cooperative.reach_counts(batch, items=items).tolist() == expected[batch.node_ids].tolist()


@examples(8)
@given(st.integers(1, 40), st.integers(1, 3), st.integers(0, 1000))
def test_both_implementations_count_the_same(num_seeds, num_layers, seed):
    graph = random_graph(50, 150, seed=seed)
    batch = random_minibatch(graph, fanouts=(2,) * num_layers, num_seeds=num_seeds)
    items = torch.arange(num_seeds)[:, None]
    assert torch.equal(wb.cooperative.reach_counts(batch), reach_counts_torch(batch, items))


def test_more_seeds_than_a_pass_counts_and_any_number_of_threads():
    graph = random_graph(1500, 6000)
    batch = wb.NeighborSampler([3, 3], seed=0).sample(graph, torch.arange(1300))
    expected = reach_counts_torch(batch, torch.arange(1300)[:, None])
    before = wb.get_num_threads()
    try:
        for threads in (1, 3):
            wb.set_num_threads(threads)
            assert torch.equal(wb.cooperative.reach_counts(batch), expected)
    finally:
        wb.set_num_threads(before)


def test_without_blocks_or_items():
    alone = wb.MiniBatch(torch.tensor([4, 7]), ())
    assert wb.cooperative.reach_counts(alone).tolist() == [1, 1]
    assert wb.cooperative.reach_counts(alone, items=torch.empty(0, 1, dtype=torch.int64)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("items", "error", "message"),
    [
        (torch.zeros(2), TypeError, "items must be an int64 or int32 tensor"),
        ([[0]], TypeError, "items must be an int64 or int32 tensor"),
        (torch.tensor([0, 1]), ValueError, r"items have shape \(2,\)"),
        (torch.tensor([[0], [15]]), IndexError, "items contain 15; they are positions of the batch's 15 seeds"),
        (torch.tensor([[-1]]), IndexError, "items contain -1"),
    ],
)
def test_invalid_items(items, error, message):
    batch = wb.NeighborSampler([2]).sample(GRAPH, SEEDS)
    with pytest.raises(error, match=message):
        wb.cooperative.reach_counts(batch, items=items)
