"""Balanced cuts: sizes, weights and empty parts."""

import pytest
import torch
from hypothesis import given, strategies as st

from workbench.partition.balance import cut_evenly, fill_empty_parts


@given(st.integers(1, 60), st.data())
def test_sizes_differ_by_at_most_one(count: int, data: st.DataObject) -> None:
    num_parts = data.draw(st.integers(1, count))
    order = torch.tensor(data.draw(st.permutations(range(count))))
    part = cut_evenly(order, num_parts)
    sizes = torch.bincount(part, minlength=num_parts)
    assert len(sizes) == num_parts and int(sizes.max() - sizes.min()) <= 1
    assert bool((part[order].diff() >= 0).all())


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40).filter(any), st.data())
def test_loads_exceed_the_mean_by_at_most_two_items(weights: list[float], data: st.DataObject) -> None:
    num_parts = data.draw(st.integers(1, len(weights)))
    part = cut_evenly(torch.arange(len(weights)), num_parts, torch.tensor(weights))
    assert torch.unique(part).numel() == num_parts
    loads = torch.zeros(num_parts).index_add_(0, part, torch.tensor(weights))
    assert float(loads.max()) <= sum(weights) / num_parts + 2 * max(weights) + 1e-3


def test_an_empty_order() -> None:
    assert cut_evenly(torch.arange(0), 3).numel() == 0


@pytest.mark.parametrize(("given_parts", "num_parts"), [([0, 0, 0, 0], 4), ([2, 2, 2, 0, 0], 5), ([1, 0], 2)])
def test_empty_parts_receive_nodes_of_the_largest(given_parts: list[int], num_parts: int) -> None:
    before = torch.tensor(given_parts)
    after = fill_empty_parts(before, num_parts)
    assert before.tolist() == given_parts
    sizes, old = torch.bincount(after, minlength=num_parts), torch.bincount(before, minlength=num_parts)
    assert int(sizes.min()) >= 1
    assert int((after != before).sum()) == int((old == 0).sum())
