"""Rows, ids and edges that ranks fetch, against sets of Python, and the cost models against their equations by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.strategies import random_graph
from workbench.sampling.macrobatch_cost import aggregated_layer_bytes, sampled_layer_bytes

GRAPH = random_graph(60, 400)
OWNER = torch.arange(60) * 7 % 3


def batches_of(rank, count=5, batch_size=3):
    sampler = wb.NeighborSampler([2, 3, 4], replace=True, seed=1)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(rank))
    return [sampler.sample(GRAPH, seeds, step=step) for step, seeds in enumerate(order.split(batch_size)[:count])]


def by_hand(batches, rank, size):
    """Distinct foreign inputs and first destinations, window by window; foreign rows and edges by layer."""
    windows = [batches[i : i + size] for i in range(0, len(batches), size)]
    foreign = lambda ids: {v for v in ids.tolist() if int(OWNER[v]) != rank}  # noqa: E731
    rows = sum(len(set().union(*(foreign(mb.node_ids) for mb in window))) for window in windows)
    expanded = sum(
        len(set().union(*(foreign(mb.node_ids[: mb.blocks[0].num_dst]) for mb in window))) for window in windows
    )
    asked, edges = [0, 0, 0], [0, 0, 0]
    for mb in batches:
        for layer, block in enumerate(mb.blocks):
            for row, node in enumerate(mb.node_ids[: block.num_dst].tolist()):
                if int(OWNER[node]) != rank:
                    asked[layer] += 1
                    edges[layer] += int(block.indptr[row + 1] - block.indptr[row])
    return rows, expanded, tuple(asked), tuple(edges)


@given(rank=st.integers(-1, 2), size=st.integers(1, 7), count=st.integers(1, 6))
def test_counts_are_those_of_sets(rank, size, count):
    batches = batches_of(rank, count)
    found = wb.macrobatch_work([wb.RemoteFetch.of(mb, OWNER, rank) for mb in batches], size=size)
    assert (found.rows, found.expanded, found.asked, found.edges) == by_hand(batches, rank, size)
    assert found.num_macrobatches == found.num_groups == -(-count // size)


@given(size=st.integers(2, 6), data=st.data())
def test_larger_groups_never_fetch_more_and_groups_end_with_their_macrobatch(size, data):
    group = data.draw(st.integers(1, size))
    fetches = [wb.RemoteFetch.of(mb, OWNER, 0) for mb in batches_of(0)]
    found = wb.macrobatch_work(fetches, size=size, group_size=group)
    windows = [fetches[i : i + size] for i in range(0, 5, size)]
    parts = [wb.macrobatch_work(window, size=group) for window in windows]
    assert found.rows == sum(part.rows for part in parts)
    assert found.num_groups == sum(part.num_groups for part in parts)
    least, most = (wb.macrobatch_work(fetches, size=end) for end in (5, 1))
    assert least.rows <= found.rows <= most.rows and least.expanded <= found.expanded <= most.expanded
    assert (least.asked, least.edges) == (found.asked, found.edges), "what is sampled does not depend on the size"


def test_ranks_add_up_and_wait_for_the_one_with_most_relays():
    works = [
        wb.macrobatch_work([wb.RemoteFetch.of(mb, OWNER, rank) for mb in batches_of(rank, count)], size=2)
        for rank, count in ((0, 5), (1, 2))
    ]
    both = works[0] + works[1]
    assert both.num_batches == 7 and both.num_macrobatches == 3 and both.num_groups == 3
    assert both.rows == works[0].rows + works[1].rows and both.rows_with_aggregates == 2 * both.expanded
    assert both.edges == tuple(a + b for a, b in zip(works[0].edges, works[1].edges, strict=True))


def test_the_equations_by_hand():
    work = wb.MacrobatchWork(4, 2, 2, rows=100, expanded=40, asked=(40, 12, 4), edges=(70, 30, 8))
    plain = wb.macrobatch_bytes(work, row_bytes=512, relay_bytes=1000)
    assert plain == (12 * 56 + 4 * 108, 2000, 51_200) and plain.total == sum(plain)
    cached = wb.macrobatch_bytes(work, row_bytes=512, relay_bytes=1000, aggregates=True)
    assert cached == (12 * 16 + 4 * 38, 2000, 2 * 40 * 512)
    assert sampled_layer_bytes(40, 60, 70, row_bytes=512) == 512 * 100 + 8 * (40 + 60) + 4 * 70
    assert aggregated_layer_bytes(40, row_bytes=512) == 512 * 80 + 8 * 40


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wb.macrobatch_work([], size=1), "no mini-batches"),
        (lambda: wb.macrobatch_work([FETCH], size=0), "size is 0"),
        (lambda: wb.macrobatch_work([FETCH], size=2, group_size=3), "group_size is 3"),
        (lambda: wb.macrobatch_bytes(WORK, row_bytes=-1), "row_bytes is -1"),
        (lambda: wb.macrobatch_bytes(WORK, row_bytes=1, relay_bytes=-2.0), r"relay_bytes is -2\.0"),
        (lambda: wb.RemoteFetch.of(wb.MiniBatch(torch.tensor([0]), ()), OWNER, 0), "no blocks"),
    ],
)
def test_invalid_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


FETCH = wb.RemoteFetch.of(batches_of(0, 1)[0], OWNER, 0)
WORK = wb.macrobatch_work([FETCH], size=1)
