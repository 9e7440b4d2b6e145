"""The LSTM aggregator: packed sequences give the states of one bucket per in-degree."""

import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

import workbench as wb
from tests.strategies import graphs
from workbench.nn.sage import _states_by_degree, _states_of_packed, packed_sizes


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
def test_batch_sizes_are_those_of_the_rows(counts: dict[int, int]) -> None:
    sizes = packed_sizes(sorted(counts.items()))
    lengths = [sum(size > row for size in sizes) for row in range(max(sizes, default=0))]
    assert lengths == [degree for degree in sorted(counts, reverse=True) if degree for _ in range(counts[degree])]
