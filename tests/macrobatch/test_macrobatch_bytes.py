"""The cost model of macrobatches, and the counts it is made of, against sets of Python."""

import pytest
import torch
from hypothesis import given, strategies as st

import workbench as wb
from tests.strategies import random_graph

GRAPH = random_graph(60, 400, edge_ids=False)
OWNER = torch.arange(60) * 7 % 3


def batches_of(rank, count=5, batch_size=3):
    sampler = wb.NeighborSampler([2, 3, 4], replace=True, seed=1)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(rank))
    return [sampler.sample(GRAPH, seeds, step=step) for step, seeds in enumerate(order.split(batch_size)[:count])]


def rows_by_hand(batches, rank, size, *, expanded):
    """Distinct nodes of other ranks among the inputs, or the first layer's destinations, window by window."""
    windows = [batches[i : i + size] for i in range(0, len(batches), size)]
    ids = [[mb.node_ids[: mb.blocks[0].num_dst if expanded else None].tolist() for mb in one] for one in windows]
    return sum(len({v for batch in one for v in batch if int(OWNER[v]) != rank}) for one in ids)


def topology_by_hand(batches, rank, first):
    """12 bytes per row that another rank draws and 4 per edge of it, without the first layers."""
    total = 0
    for ids, block in ((mb.node_ids.tolist(), block) for mb in batches for block in mb.blocks[first:]):
        for row, node in enumerate(ids[: block.num_dst]):
            if int(OWNER[node]) != rank:
                total += 12 + 4 * int(block.indptr[row + 1] - block.indptr[row])
    return total


@given(rank=st.integers(0, 2), size=st.integers(1, 7), count=st.integers(1, 6))
def test_bytes_are_those_of_sets(rank, size, count):
    batches = batches_of(rank, count)
    counts = wb.macrobatch.count_macrobatches(batches, owner=OWNER, rank=rank)
    relays = 100.0 * -(-count // size)
    for found, first in ((counts.sampled, 0), (counts.aggregated, 1)):
        cost = wb.macrobatch.macrobatch_bytes(found, size=size, row_bytes=512, relay_bytes=100.0)
        rows = (1 + first) * rows_by_hand(batches, rank, size, expanded=first == 1)
        assert cost == (topology_by_hand(batches, rank, first), relays, 512 * rows)
        assert cost.total == sum(cost)


@given(size=st.sampled_from([2, 4, 5]), data=st.data())
def test_smaller_groups_never_fetch_less_and_only_features_change(size, data):
    group = data.draw(st.sampled_from([f for f in range(1, size + 1) if size == 5 or size % f == 0]))
    counts = wb.macrobatch.count_macrobatches(batches_of(0), owner=OWNER, rank=0).sampled
    found = wb.macrobatch.macrobatch_bytes(counts, size=size, group_size=group, row_bytes=4, relay_bytes=1.0)
    least, most = (wb.macrobatch.macrobatch_bytes(counts, size=end, row_bytes=4, relay_bytes=1.0) for end in (5, 1))
    assert least.features <= found.features <= most.features and least.topology == found.topology == most.topology
    assert found.features == 4 * rows_by_hand(batches_of(0), 0, group, expanded=False)
    assert found.relays == -(-5 // size)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size is 0"),
        ({"size": 2, "group_size": 3}, "group_size is 3"),
        ({"size": 3, "group_size": 2}, "group_size is 2 for macrobatches of 3; it must divide it"),
        ({"size": 1, "row_bytes": -1}, "row_bytes is -1"),
        ({"size": 1, "relay_bytes": -2.0}, r"relay_bytes is -2\.0"),
    ],
)
def test_invalid_sizes_are_named(options, message):
    counts = wb.macrobatch.count_macrobatches(batches_of(0), owner=OWNER, rank=0).sampled
    with pytest.raises(ValueError, match=message):
        wb.macrobatch.macrobatch_bytes(counts, **{"row_bytes": 1, **options})
