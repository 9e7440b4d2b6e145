"""The LSTM aggregator: few buckets of packed sequences give the states of one bucket per in-degree."""

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

import workbench as wb
from tests.strategies import graphs, random_graph
from workbench.nn.sage import MOST_PADDING, _states_by_degree, _states_of_packed, packed_buckets


def results(states, lstm: nn.LSTM, block: wb.Block) -> list[Tensor]:
    """Return the states and all gradients of a sum that weighs every state differently; zeros if there are none."""
    h = torch.linspace(-3, 3, block.num_src * 4, dtype=torch.float64).sin().view(-1, 4).requires_grad_()
    out, inputs = states(lstm, block, h), [h, *lstm.parameters()]
    if not out.requires_grad:
        return [out, *map(torch.zeros_like, inputs)]
    total = (out * torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out)).sum()
    return [out, *torch.autograd.grad(total, inputs)]


@given(graph=graphs(max_nodes=9, max_edges=40), fanout=st.sampled_from([-1, 1, 3]))
def test_packed_sequences_give_the_states_of_degree_buckets(graph: wb.Graph, fanout: int) -> None:
    torch.manual_seed(0)
    lstm = nn.LSTM(4, 4, batch_first=True).double()
    block = wb.NeighborSampler([fanout]).sample(graph, torch.arange(graph.num_nodes)).blocks[0]
    for ours, theirs in zip(
        results(_states_of_packed, lstm, block), results(_states_by_degree, lstm, block), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


@given(st.dictionaries(st.integers(0, 300), st.integers(1, 50), max_size=40))
def test_buckets_are_few_and_bounded(counts: dict[int, int]) -> None:
    buckets = packed_buckets(sorted(counts.items()))
    lengths = sorted(
        (sum(size > row for size in sizes) for sizes in buckets for row in range(sizes[0])), reverse=True
    )  # of every row
    expected = [degree for degree in sorted(counts, reverse=True) if degree for _ in range(counts[degree])]
    assert lengths == expected
    for sizes in buckets:
        assert sizes == sorted(sizes, reverse=True)
        assert len(sizes) * sizes[0] <= (1 + MOST_PADDING) * sum(sizes)
    bound = 1
    while (1 + MOST_PADDING) ** (bound - 1) < max(counts, default=1):
        bound += 1
    assert len(buckets) <= bound


@pytest.mark.parametrize(("fanout", "calls"), [(5, 1), (-1, 7)])
def test_calls(fanout: int, calls: int) -> None:
    """A fanout that most rows have needs one bucket, which the rest join."""
    block = wb.NeighborSampler([fanout]).sample(random_graph(300, 2000, seed=1), torch.arange(100)).blocks[0]
    assert len(packed_buckets(enumerate(block.in_degrees().bincount().tolist()))) == calls
    assert len(block.in_degrees().unique()) > calls
