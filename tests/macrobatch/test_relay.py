"""Macrobatch sampling: every mini-batch of every rank's window is the one that one process samples, bit for bit."""

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

import workbench as wb
from tests.sampling.test_contract import (
    BOTH_WAYS,
    INDEPENDENT,
    REACHES_FURTHER,
    assert_same_batch,
    excluded_edges,
    graphs,
    sampler_for,
)
from tests.strategies import examples, random_graph
from workbench.core.exchange import LENGTH_BYTES, run_in_lockstep
from workbench.core.graph import Graph
from workbench.kernels.gather import place_rows, place_rows_torch
from workbench.sampling.sampler import row_offsets

GRAPH = random_graph(60, 400, seed=5, edge_weight=torch.float64, num_edge_types=3)
OWNER = torch.arange(60) * 7 % 5 % 3
NONE = torch.empty(0, dtype=torch.int64)


def by_real_ranks(
    graph: Graph, seeds: list[list[Tensor]], owner: Tensor, *, exclude_edges: Any = None, steps: Any, **options: Any
) -> list[list[wb.MiniBatch]]:
    """Sample on ranks that have their own rows alone."""
    parts = [wb.sampling.OwnedGraph.of(graph, owner, rank, len(seeds)) for rank in range(len(seeds))]
    excluded = exclude_edges or [None] * len(seeds)
    each = zip(parts, seeds, steps, excluded, strict=True)
    return run_in_lockstep(
        [wb.macrobatch.sample_relayed(p, s, steps=n, exclude_edges=e, **options) for p, s, n, e in each]
    )


@pytest.mark.parametrize("name", [name for name in INDEPENDENT if name not in REACHES_FURTHER | BOTH_WAYS])
@examples(2)
@given(graph=graphs(), num_ranks=st.integers(1, 4), choice=st.integers(0, 2**16), data=st.data())
def test_every_mini_batch_is_that_of_one_process(
    name: str, graph: Graph, num_ranks: int, choice: int, data: st.DataObject
) -> None:
    random = torch.Generator().manual_seed(choice)

    def below(limit: int) -> int:
        return int(torch.randint(limit, (1,), generator=random))

    def window() -> list[Tensor]:
        orders = [torch.randperm(graph.num_nodes, generator=random) for _ in range(below(4))]
        return [order[: below(graph.num_nodes + 1)] for order in orders]

    sampler, seeds = sampler_for(name, graph), [window() for _ in range(num_ranks)]
    steps = [[below(5) - 2 for _ in one] for one in seeds]
    some = excluded_edges(name, graph, data)
    exclude = [[some if below(2) else None for _ in one] for one in seeds]
    owner = torch.randint(num_ranks, (graph.num_nodes,), generator=random)
    options: dict[str, Any] = {"sampler": sampler, "steps": steps, "exclude_edges": exclude}
    found = by_real_ranks(graph, seeds, owner, **options)
    whole = wb.macrobatch.relay_windows(graph, seeds, owner=owner.int(), num_ranks=num_ranks, **options)
    for rank in range(num_ranks):
        assert len(found[rank]) == len(whole[rank]) == len(seeds[rank])
        for number, mb in enumerate(found[rank]):
            step = steps[rank][number]
            expected = sampler.sample(graph, seeds[rank][number], step=step, exclude_edges=exclude[rank][number])
            assert_same_batch(mb, expected)
            assert_same_batch(whole[rank][number], expected)
            assert mb.step == step and mb.exchanges is None
            assert mb.nbytes == sum(tensor.nbytes for tensor in expected._tensors().values() if tensor is not None)


def test_dependent_mini_batches_with_shared_layers() -> None:
    seeds = [[torch.arange(rank, 60, 5), torch.arange(rank + 1, 60, 7)] for rank in range(3)]
    for dependence in (wb.Smoothed(4), wb.Nested(4)):
        sampler = wb.LaborSampler([3, 2], layer_dependency=True, dependence=dependence, edge_ids=True)
        for mbs, ids in zip(
            by_real_ranks(GRAPH, seeds, OWNER, sampler=sampler, steps=[[4, 7]] * 3), seeds, strict=True
        ):
            for mb, one, step in zip(mbs, ids, (4, 7), strict=True):
                assert_same_batch(mb, sampler.sample(GRAPH, one, step=step))


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("size", [1, 5])
def test_counts_are_those_of_the_rows_of_other_ranks(replace: bool, size: int) -> None:
    """T of equations 2 and 3, restricted to remote rows, and the relays: as many as layers, whatever the window."""
    sampler = wb.NeighborSampler([3, 2, 2], replace=replace, edge_ids=True)
    seeds = [[torch.arange(rank + shift, 60, 9) for shift in range(size)] for rank in range(3)]
    links = [wb.Traffic() for _ in range(3)]
    steps = [list(range(size))] * 3
    windows = wb.macrobatch.relay_windows(
        GRAPH, seeds, sampler=sampler, owner=OWNER, num_ranks=3, steps=steps, traffic=links
    )
    assert GRAPH.edge_type is not None
    edge_bytes = 4 + 8 + 8 + GRAPH.edge_type.element_size()  # source, edge id, weight, type
    for rank, traffic in enumerate(links):
        row = traffic.row()
        asked = rows = edges = 0
        for other, mbs in enumerate(windows):
            for block, ids in ((b, mb.node_ids) for mb in mbs for b in mb.blocks):
                owner = OWNER[ids[: block.num_dst]]
                if other != rank:
                    asked += int((owner == rank).sum())
                else:
                    rows += int((owner != rank).sum())
                    edges += int(block.indptr.diff()[owner != rank].sum())
        assert (row["rank_ids"], row["rank_ids_bytes"]) == (asked, 8 * asked)
        assert (row["rank_edges"], row["rank_edges_bytes"]) == (edges, 4 * rows + edge_bytes * edges)
        assert row["rank_relays"] == 3
        heads = 3 * 2 * (2 * LENGTH_BYTES + 8 * (1 + 3 * size) + 8)  # per layer and rank: lengths, request, answer
        assert 0 <= row["rank_relays_bytes"] - heads <= 3 * 2 * 4 * 7  # columns padded to words


def test_one_rank_counts_no_relay() -> None:
    traffic = wb.Traffic()
    options: dict[str, Any] = {"sampler": wb.NeighborSampler([2]), "owner": OWNER * 0, "num_ranks": 1}
    wb.macrobatch.relay_windows(GRAPH, [[torch.arange(4)]], steps=[[0]], traffic=[traffic], **options)
    assert traffic.row() == {}


def test_rows_of_other_ranks_are_counted_by_group() -> None:
    sampler = wb.NeighborSampler([3, 3], replace=True)
    batches = [sampler.sample(GRAPH, torch.arange(step, 60, 9), step=step) for step in range(5)]
    for size in (1, 2, 5):
        groups = [batches[at : at + size] for at in range(0, 5, size)]
        sets = [{node for mb in group for node in mb.node_ids.tolist()} for group in groups]
        expected = sum(int(OWNER[node]) != 1 for nodes in sets for node in nodes)
        assert wb.macrobatch.remote_rows(iter(batches), OWNER, 1, group_size=size) == expected > 0
    with pytest.raises(ValueError, match="group_size is 0"):
        wb.macrobatch.remote_rows(batches, OWNER, 1, group_size=0)


def test_ranks_draw_once_per_step() -> None:
    """Mini-batches of one step are drawn together, whichever rank they are of."""
    calls: list[tuple[int, int]] = []

    class Counted(wb.NeighborSampler):
        def draw(self, graph: Graph, nodes: Tensor, *, layer: int, step: int = 0, **options: Any) -> wb.sampling.Drawn:
            calls.append((layer, step))
            return super().draw(graph, nodes, layer=layer, step=step, **options)

    seeds = [[torch.arange(rank, 60, 9), torch.arange(rank, 60, 8)] for rank in range(3)]
    by_real_ranks(GRAPH, seeds, OWNER, sampler=Counted([2, 2]), steps=[[1, 2]] * 3)
    assert sorted(calls) == sorted([(layer, step) for layer in range(2) for step in (1, 2)] * 3)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float32, torch.float64])
def test_rows_are_copied_to_their_slots(dtype: torch.dtype) -> None:
    lengths, slots = torch.tensor([2, 0, 3, 1]), torch.tensor([4, 0, 1, 2])
    out_lengths = torch.zeros(6, dtype=torch.int64)
    out_lengths[slots] = lengths
    out_indptr, values = row_offsets(out_lengths), torch.arange(6).to(dtype)
    for place in (place_rows, place_rows_torch):
        out = torch.zeros(6, dtype=dtype)
        place(values, row_offsets(lengths) + 9, slots, out, out_indptr)
        assert out.tolist() == [2, 3, 4, 5, 0, 1]


def test_bad_arguments_are_refused_before_work_starts() -> None:
    part, sampler = wb.sampling.OwnedGraph.of(GRAPH, OWNER, 1), wb.NeighborSampler([3, 2])
    for bad, words in (
        (wb.LaborSampler([3], importance=1), r"macrobatch sampling needs .* LaborSampler .* importance=0"),
        (wb.RandomWalkSampler([3]), r"RandomWalkSampler reads rows of nodes that other ranks own .*CooperativeSampler"),
    ):
        with pytest.raises(ValueError, match=words):
            wb.macrobatch.sample_relayed(part, [NONE], sampler=bad, steps=[0])
    with pytest.raises(ValueError, match="steps has 2 items for 1 mini-batches; pass one per mini-batch"):
        wb.macrobatch.sample_relayed(part, [NONE], sampler=sampler, steps=[0, 1])
    with pytest.raises(ValueError, match="seeds contains 4 more than once"):
        wb.macrobatch.sample_relayed(part, [torch.tensor([4, 4])], sampler=sampler, steps=[0])
    with pytest.raises(ValueError, match="steps has 1 items for 3 ranks; pass one per rank"):
        wb.macrobatch.relay_windows(GRAPH, [[]] * 3, sampler=sampler, owner=OWNER, num_ranks=3, steps=[[]])


def test_messages_that_do_not_fit_are_refused() -> None:
    part, sampler = wb.sampling.OwnedGraph.of(GRAPH, OWNER, 1), wb.NeighborSampler([3])
    foreign = int((OWNER == 2).nonzero()[0])

    def begun() -> Any:
        relay = wb.macrobatch.sample_relayed(part, [torch.arange(30)], sampler=sampler, steps=[0])
        next(relay)
        return relay

    with pytest.raises(IndexError, match=rf"other ranks ask for contains {foreign}, which rank 2 owns; rank 1 has"):
        begun().send([torch.tensor([1, 0, 1, 0, foreign]), NONE, NONE])
    with pytest.raises(ValueError, match="the request of rank 0 has 4 numbers, not 5; all ranks must sample with the"):
        begun().send([torch.tensor([1, 0, 1, 0]), NONE, NONE])
    with pytest.raises(ValueError, match="the exchange returned 2 vectors; it must return one per rank, 3"):
        begun().send([NONE, NONE])
    relay = begun()
    relay.send([NONE, NONE, NONE])
    with pytest.raises(ValueError, match="the answer of rank 0 has 0 numbers, not"):
        relay.send([NONE, NONE, NONE])
