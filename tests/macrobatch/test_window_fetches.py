"""Rows that a window fetches as macrobatches, beside caches of the same size."""

from functools import cache
from itertools import combinations

import pytest
import torch
from hypothesis import given, strategies as st

import workbench as wb

WINDOWS = st.lists(st.sets(st.integers(0, 9), max_size=5), min_size=1, max_size=6)


def fewest(reads: list[frozenset[int]], capacity: int) -> int:
    """The fewest fetches of any cache: after each read, any of the rows seen so far that were kept may stay."""

    @cache
    def rest(position: int, kept: frozenset[int]) -> int:
        if position == len(reads):
            return 0
        read = reads[position]
        found = sorted(kept | read)
        sizes = min(capacity, len(found))
        return len(read - kept) + min(rest(position + 1, frozenset(some)) for some in combinations(found, sizes))

    return rest(0, frozenset())


@given(WINDOWS, st.integers(1, 4))
def test_belady_fetches_the_fewest_rows(window: list[set[int]], group_size: int) -> None:
    reads = [torch.tensor(sorted(ids), dtype=torch.int64) for ids in window]
    found = wb.macrobatch.window_fetches(reads, group_size=group_size)
    groups = [set().union(*window[at : at + group_size]) for at in range(0, len(window), group_size)]
    assert found.separate_rows == sum(map(len, window)) and found.grouped_rows == sum(map(len, groups))
    assert found.capacity_rows == max(1, *map(len, groups))
    assert found.belady_rows == fewest([frozenset(ids) for ids in window], found.capacity_rows)
    assert found.belady_rows <= min(found.grouped_rows, found.lru_rows) <= found.separate_rows
    assert wb.macrobatch.window_fetches(reads, group_size=len(reads)).belady_rows == len(set().union(*window))


def test_batches_and_a_capacity_of_ones_own() -> None:
    graph = wb.Graph.from_edges(torch.arange(20), (torch.arange(20) + 1) % 20, num_nodes=20)
    window = list(wb.batches(graph, torch.arange(20), sampler=wb.FullNeighborSampler(2), batch_size=5, epoch=0))
    ids = [mb.node_ids for _, mb in window]
    assert wb.macrobatch.window_fetches(window, group_size=2) == wb.macrobatch.window_fetches(ids, group_size=2)
    assert wb.macrobatch.window_fetches([mb for _, mb in window], group_size=1, capacity_rows=1).capacity_rows == 1
    with pytest.raises(ValueError, match="capacity_rows is 0"):
        wb.macrobatch.window_fetches(ids, group_size=1, capacity_rows=0)
    with pytest.raises(TypeError, match="an item of window is an int"):
        wb.macrobatch.window_fetches([3], group_size=1)  # pyright: ignore[reportArgumentType]
