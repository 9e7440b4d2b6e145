"""Cooperative sampling: the ranks' batches together are the batch that one process samples, bit for bit."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

import workbench as wb
from tests.sampling.test_contract import (
    BOTH_WAYS,
    INDEPENDENT,
    SAMPLERS,
    LastNeighbors,
    assert_same_batch,
    excluded_edges,
    graphs,
    sampler_for,
)
from tests.strategies import examples, random_graph
from tests.training.cooperative import Transport, cooperative_batches as distribute
from tests.training.toys import relative_difference
from workbench.cooperative import step as cooperative_step
from workbench.core import exchange
from workbench.core.exchange import run_in_lockstep
from workbench.core.graph import Graph
from workbench.kernels.threads import get_num_threads, set_num_threads

GRAPH = random_graph(60, 400, seed=5, edge_weight=torch.float64)
OWNER = torch.arange(60) * 7 % 5 % 3
SEEDS = torch.arange(0, 60, 2)
SAMPLER = wb.NeighborSampler([3, 2])


class Walker(LastNeighbors):
    """Claims to read rows of nodes that it does not draw for."""

    reads_other_rows = True


def by_real_ranks(graph: Graph, seeds: Tensor, owner: Tensor, num_ranks: int, **options: Any) -> list[wb.MiniBatch]:
    """Sample on ranks that have their own rows alone."""
    parts = [wb.sampling.OwnedGraph.of(graph, owner, rank, num_ranks) for rank in range(num_ranks)]
    return run_in_lockstep([wb.cooperative.sample_owned(part, seeds, **options) for part in parts])


def rows_of(mb: wb.MiniBatch, number: int) -> dict[int, list[tuple[float, ...]]]:
    """The drawn edges of one layer by destination, in raw ids, in order: source and whatever else an edge has."""
    block = mb.blocks[number]
    halo = mb.exchanges[number].halo_ids if mb.exchanges else torch.empty(0, dtype=torch.int64)
    owned = block.num_src - len(halo)
    sources = torch.cat([mb.node_ids[:owned], halo])[block.indices.long()]
    columns = [sources, *(t for t in (block.edge_ids, block.edge_weight, block.edge_type) if t is not None)]
    edges = list(zip(*(column.tolist() for column in columns), strict=True))
    starts = block.indptr.tolist()
    return {node: edges[starts[i] : starts[i + 1]] for i, node in enumerate(mb.node_ids[: block.num_dst].tolist())}


def assert_together(batches: Sequence[wb.MiniBatch], whole: wb.MiniBatch, owner: Tensor) -> None:
    """The owned sets and rows of all ranks, disjoint, are those of the batch; exchanges fill every halo."""
    for rank, mb in enumerate(batches):
        mb.validate(num_nodes=len(owner))
        assert mb.exchanges is not None and mb.step == whole.step
        assert (owner[mb.node_ids] == rank).all()
    assert sorted(torch.cat([mb.node_ids for mb in batches]).tolist()) == sorted(whole.node_ids.tolist())
    for number in range(len(whole.blocks)):
        together: dict[int, list[tuple[float, ...]]] = {}
        for mb in batches:
            together |= rows_of(mb, number)
        assert sum(mb.blocks[number].num_dst for mb in batches) == len(together)
        assert together == rows_of(whole, number)
        assert_filled(batches, number, owner)


def assert_filled(batches: Sequence[wb.MiniBatch], number: int, owner: Tensor) -> None:
    """What every rank sends is what the receiver expects: nodes of the sender, ascending, and none in vain."""
    for receiver, mb in enumerate(batches):
        assert mb.exchanges is not None
        halo = mb.exchanges[number].halo_ids.split(mb.exchanges[number].receive_counts)
        for sender, ids in enumerate(halo):
            theirs = batches[sender].exchanges
            assert theirs is not None
            sent = theirs[number].send_index.split(theirs[number].send_counts)[receiver]
            assert torch.equal(batches[sender].node_ids[sent], ids)
            assert (ids[1:] > ids[:-1]).all() and (owner[ids] == sender).all() and (sender != receiver or not len(ids))
        block = mb.blocks[number]
        owned = block.num_src - len(mb.exchanges[number].halo_ids)
        assert len(block.indices[block.indices >= owned].unique()) == block.num_src - owned


TOGETHER = [name for name in SAMPLERS if name in INDEPENDENT or hasattr(SAMPLERS[name], "draw_owned")]
"""Samplers whose rows are independent, or that exchange with other ranks what rows depend on."""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ranks run in two threads, however little they exchange."""
    monkeypatch.setattr(exchange, "_FEW_ROWS", 0)
    before = get_num_threads()
    set_num_threads(2)
    yield
    set_num_threads(before)


@pytest.mark.parametrize("name", [name for name in TOGETHER if name not in BOTH_WAYS])
def test_ranks_in_threads_sample_what_they_do_in_turn(name: str, request: pytest.FixtureRequest) -> None:
    graph = random_graph(60, 400, seed=6, edge_weight=torch.float64, num_edge_types=3)
    options: dict[str, Any] = {"sampler": sampler_for(name, graph), "owner": OWNER, "num_ranks": 3, "step": 4}
    in_turn = wb.cooperative.batches(graph, SEEDS, **options)
    request.getfixturevalue("at_once")
    for ours, theirs in zip(wb.cooperative.batches(graph, SEEDS, **options), in_turn, strict=True):
        assert_same_batch(ours, theirs)


@pytest.mark.usefixtures("at_once")
def test_two_ranks_draw_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=30)

    class Waiting(LastNeighbors):
        def draw(self, *args: Any, **options: Any) -> wb.sampling.Drawn:
            both.wait()
            return super().draw(*args, **options)

    batches = wb.cooperative.batches(GRAPH, SEEDS, sampler=Waiting(), owner=OWNER % 2, num_ranks=2)
    assert [mb.num_seeds for mb in batches] == (OWNER[SEEDS] % 2).bincount(minlength=2).tolist()


@pytest.mark.usefixtures("at_once")
def test_an_error_of_one_rank_is_raised() -> None:
    class Broken(LastNeighbors):
        def draw(self, graph: Graph, nodes: Tensor, **options: Any) -> wb.sampling.Drawn:
            if 1 in OWNER[nodes]:
                raise OSError("rank 1 has no disk")
            return super().draw(graph, nodes, **options)

    with pytest.raises(OSError, match="rank 1"):
        wb.cooperative.batches(GRAPH, SEEDS, sampler=Broken(), owner=OWNER, num_ranks=3)


@pytest.mark.parametrize("name", [name for name in TOGETHER if name not in BOTH_WAYS])
@examples(5)
@given(graph=graphs(), step=st.integers(-3, 3), num_ranks=st.integers(1, 4), data=st.data())
def test_the_ranks_together_sample_the_batch(
    name: str, graph: Graph, step: int, num_ranks: int, data: st.DataObject
) -> None:
    exclude = excluded_edges(name, graph, data)
    sampler = sampler_for(name, graph)
    options: dict[str, Any] = {"sampler": sampler, "step": step, "exclude_edges": exclude}
    order = data.draw(st.permutations(range(graph.num_nodes)))
    seeds = torch.tensor(order[: data.draw(st.integers(0, graph.num_nodes))], dtype=torch.int64)
    owner = torch.tensor([data.draw(st.integers(0, num_ranks - 1)) for _ in range(graph.num_nodes)])
    whole = sampler.sample(graph, seeds, step=step, exclude_edges=exclude)
    batches = by_real_ranks(graph, seeds, owner, num_ranks, **options)
    assert_together(batches, whole, owner)
    counted = wb.cooperative.batches(graph, seeds, owner=owner.int(), num_ranks=num_ranks, **options)
    for ours, theirs in zip(counted, batches, strict=True):
        assert_same_batch(ours, theirs)
        assert ours.exchanges is not None and theirs.exchanges is not None
        assert [e.send_index.tolist() for e in ours.exchanges] == [e.send_index.tolist() for e in theirs.exchanges]
    if num_ranks == 1:
        assert_same_batch(batches[0], whole)


@pytest.mark.parametrize("kind", ["sage-mean", "gcn", "gat"])
def test_ranks_compute_the_outputs_and_gradients_of_the_batch(kind: str) -> None:
    batches = by_real_ranks(GRAPH, SEEDS, OWNER, 3, sampler=SAMPLER, step=4)
    whole, transport = SAMPLER.sample(GRAPH, SEEDS, step=4), Transport(3)
    model = wb.build_model(kind, in_dim=6, hidden_dim=8, out_dim=4, dropout=0.5, seed=4).double()
    x = torch.linspace(-9, 9, 60 * 6, dtype=torch.float64).sin().view(60, 6)

    def outputs(mb: wb.MiniBatch, rows: Tensor, **options: Any) -> Tensor:
        out = torch.zeros(60, 4, dtype=torch.float64)
        found = model(mb.blocks, rows[mb.node_ids], node_ids=mb.node_ids, step=mb.step, **options)
        return out.index_put((mb.seeds,), found)

    def work(rank: int) -> tuple[Tensor, Tensor]:
        rows, mb = x.clone().requires_grad_(), batches[rank]
        out = outputs(mb, rows, exchanges=[partial(transport.fill, rank, e) for e in mb.exchanges or ()])
        (gradient,) = torch.autograd.grad(out.square().sum(), rows)
        return out.detach(), gradient

    found = transport.run(work)
    rows = x.clone().requires_grad_()
    expected = outputs(whole, rows)
    (gradient,) = torch.autograd.grad(expected.square().sum(), rows)
    assert relative_difference(sum(out for out, _ in found), expected.detach()) <= 1e-10  # type: ignore[arg-type]
    assert relative_difference(sum(g for _, g in found), gradient) <= 1e-10  # type: ignore[arg-type]


def test_a_distributed_batch_exchanges_the_same_rows() -> None:
    """An independent implementation: the batch of one process, cut by the owners of its nodes."""
    ours = wb.cooperative.batches(GRAPH, SEEDS, sampler=SAMPLER, owner=OWNER, num_ranks=3)
    theirs = distribute(SAMPLER.sample(GRAPH, SEEDS), OWNER, 3)
    for a, b in zip(ours, theirs, strict=True):
        assert a.exchanges is not None and b.exchanges is not None
        for mine, other in zip(a.exchanges, b.exchanges, strict=True):
            assert mine.send_counts == other.send_counts and mine.receive_counts == other.receive_counts
            assert sorted(mine.halo_ids.tolist()) == sorted(other.halo_ids.tolist())


def test_dependent_batches_and_layer_dependency() -> None:
    for dependence in (wb.Smoothed(4), wb.Nested(4)):
        sampler = wb.LaborSampler([3, 2], layer_dependency=True, dependence=dependence, edge_ids=True)
        for step in (4, 5, 7):
            options: dict[str, Any] = {"sampler": sampler, "step": step}
            assert_together(
                by_real_ranks(GRAPH, SEEDS, OWNER, 3, **options), sampler.sample(GRAPH, SEEDS, step=step), OWNER
            )


def test_ranks_without_seeds_nodes_or_edges() -> None:
    star = Graph.from_edges([1, 2, 3], [0, 0, 0], num_nodes=6)
    owner = torch.tensor([0, 0, 1, 3, 0, 1])
    whole = wb.FullNeighborSampler(2).sample(star, torch.tensor([0, 4]))
    batches = by_real_ranks(star, torch.tensor([0, 4]), owner, 5, sampler=wb.FullNeighborSampler(2))
    assert_together(batches, whole, owner)
    assert [mb.num_seeds for mb in batches] == [2, 0, 0, 0, 0]
    assert [mb.node_ids.tolist() for mb in batches] == [[0, 4, 1], [2], [], [3], []]


@pytest.mark.parametrize("importance", [1, 3, "*"])
@pytest.mark.parametrize("num_ranks", [2, 5])
def test_importance_is_that_of_the_destinations_of_all_ranks(importance: Any, num_ranks: int) -> None:
    """π of rows drawn on one rank alone would be another: the union is the batch of one process, weights included."""
    owner = torch.randint(num_ranks, (60,), generator=torch.Generator().manual_seed(num_ranks))
    cases: list[dict[str, Any]] = [{}, {"poisson": False}, {"layer_dependency": True}]
    for options in (*cases, {"dependence": wb.Smoothed(4), "edge_ids": True}):
        sampler = wb.LaborSampler([3, -1, 2], importance=importance, **options)
        whole = sampler.sample(GRAPH, SEEDS, step=3)
        assert_together(by_real_ranks(GRAPH, SEEDS, owner, num_ranks, sampler=sampler, step=3), whole, owner)
    alone = wb.cooperative.independent_batches(GRAPH, SEEDS, sampler=sampler, owner=owner, num_ranks=num_ranks, step=3)
    drawn: dict[int, list[tuple[float, ...]]] = {}
    for mb in alone:
        drawn |= rows_of(mb, 2)
    assert drawn != rows_of(whole, 2)


def test_a_lie_about_owned_sources_is_refused() -> None:
    """Ranks that ask for nodes that this one does not own are refused before π is computed."""
    part = wb.sampling.OwnedGraph.of(GRAPH, OWNER, 1)
    rank = wb.cooperative.sample_owned(part, SEEDS, sampler=wb.LaborSampler([3], importance=1))
    next(rank)
    none, node = torch.empty(0, dtype=torch.int64), int((OWNER == 2).nonzero()[0])
    with pytest.raises(IndexError, match=rf"the ids that other ranks ask for contains {node}, which rank 2 owns"):
        rank.send([torch.tensor([node]), none, none])


def test_independent_ranks_sample_their_own_seeds() -> None:
    sampler = wb.LaborSampler([3, 2], importance=1)
    batches = wb.cooperative.independent_batches(GRAPH, SEEDS, sampler=sampler, owner=OWNER, num_ranks=3, step=2)
    for rank, mb in enumerate(batches):
        assert_same_batch(mb, sampler.sample(GRAPH, SEEDS[OWNER[SEEDS] == rank], step=2))
        assert mb.exchanges is None


def test_a_foreign_node_is_refused() -> None:
    part = wb.sampling.OwnedGraph.of(GRAPH, OWNER, 1)
    node = int((OWNER == 2).nonzero()[0])
    assert repr(part) == f"OwnedGraph(rank 1 of 3: {int((OWNER == 1).sum())} of 60 nodes, {part.graph.num_edges} edges)"
    assert part.graph.num_edges == int(GRAPH.in_degrees()[OWNER == 1].sum())
    with pytest.raises(IndexError, match=rf"nodes contains {node}, which rank 2 owns; rank 1 has the rows of its own"):
        part.draw(SAMPLER, torch.tensor([int((OWNER == 1).nonzero()[0]), node]), layer=0)
    with pytest.raises(IndexError, match=r"nodes contains 60; ids must be in \[0, 60\)"):
        part.draw(SAMPLER, torch.tensor([60]), layer=0)
    rank = wb.cooperative.sample_owned(part, SEEDS, sampler=SAMPLER)
    next(rank)
    none = torch.empty(0, dtype=torch.int64)
    with pytest.raises(IndexError, match=rf"the ids that other ranks ask for contains {node}, which rank 2 owns"):
        rank.send([torch.tensor([node]), none, none])


@pytest.mark.parametrize(
    ("owner", "error", "message"),
    [
        (OWNER.float(), TypeError, "owner must be a tensor of torch.int64 or torch.int32, not torch.float32"),
        (OWNER[:-1], ValueError, r"owner has shape \(59,\); its first dimension must be 60"),
        (OWNER + 1, ValueError, r"owner contains 3; owners are ranks in \[0, 3\)"),
        (OWNER - 1, ValueError, r"owner contains -1; owners are ranks in \[0, 3\)"),
    ],
)
def test_invalid_owners_are_refused(owner: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wb.sampling.OwnedGraph.of(GRAPH, owner, 0, 3)
    for batches in (wb.cooperative.batches, wb.cooperative.independent_batches):
        with pytest.raises(error, match=message):
            batches(GRAPH, SEEDS, sampler=SAMPLER, owner=owner, num_ranks=3)


def test_random_walks_have_no_edge_types_so_relational_layers_refuse_them_on_any_number_of_ranks() -> None:
    """A visited node is no in-neighbour: no edge, and no type, connects it with the seed."""
    typed = random_graph(60, 400, seed=5, num_edge_types=3)
    model = wb.build_model("rgcn", in_dim=4, hidden_dim=4, out_dim=2, num_layers=1, num_relations=3)
    for size in (1, 3):
        options: dict[str, Any] = {"owner": OWNER % size, "num_ranks": size}
        sampler = wb.RandomWalkSampler([3], num_walks=4)
        mb = wb.cooperative.batches(typed, SEEDS, sampler=sampler, **options)[0]
        assert mb.num_edges and all(block.edge_type is None for block in mb.blocks)
        with pytest.raises(ValueError, match="the block has no edge types; sample a graph that has them"):
            model(mb.blocks, torch.zeros(mb.num_sources, 4))


def test_invalid_arguments_are_refused_before_work_starts() -> None:
    part = wb.sampling.OwnedGraph.of(GRAPH, OWNER, 0)
    message = r"cooperative sampling needs .* LadiesSampler .* importance=0"
    with pytest.raises(ValueError, match=message):
        wb.cooperative.sample_owned(part, SEEDS, sampler=wb.LadiesSampler([3]))
    with pytest.raises(ValueError, match=message):
        wb.cooperative.CooperativeSampler(wb.LadiesSampler([3]), wb.sampling.OwnedGraph(GRAPH, 0 * OWNER.int(), 0, 1))
    with pytest.raises(ValueError, match=r"seeds contains 4 more than once"):
        wb.cooperative.sample_owned(part, torch.tensor([4, 2, 4]), sampler=SAMPLER)
    with pytest.raises(IndexError, match=r"seeds contains 60"):
        wb.cooperative.sample_owned(part, torch.tensor([60]), sampler=SAMPLER)
    with pytest.raises(TypeError, match=r"owned is a Graph; pass an OwnedGraph"):
        wb.cooperative.sample_owned(GRAPH, SEEDS, sampler=SAMPLER)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"rank is 3; it must be a whole number from 0 to 2"):
        wb.sampling.OwnedGraph.of(GRAPH, OWNER, 3)
    with pytest.raises(ValueError, match=r"RandomWalkSampler reads rows of nodes that other ranks own"):
        part.draw(wb.RandomWalkSampler([2]), torch.tensor([0]), layer=0)
    with pytest.raises(ValueError, match=r"drawing on one of several ranks needs .* LaborSampler"):
        part.draw(wb.LaborSampler([2], importance="*"), torch.tensor([0]), layer=0)
    with pytest.raises(ValueError, match=r"Walker reads rows of nodes .* for which a sampler defines draw_owned"):
        wb.cooperative.sample_owned(part, SEEDS, sampler=Walker())
    with pytest.raises(IndexError, match=r"edge_ids contains 400, which is not an edge"):
        wb.cooperative.batches(
            GRAPH, SEEDS, sampler=SAMPLER, owner=OWNER, num_ranks=3, exclude_edges=torch.tensor([400])
        )


@pytest.mark.parametrize("importance", [0, 1, "*"])
def test_rows_are_independent_if_those_of_the_sampler_are(importance: Any) -> None:
    sampler = wb.LaborSampler([3], importance=importance)
    cooperative = wb.cooperative.CooperativeSampler(sampler, wb.sampling.OwnedGraph.of(GRAPH, 0 * OWNER, 0))
    assert cooperative.rows_are_independent == (importance == 0)


def test_a_single_rank_refuses_edges_that_do_not_exist() -> None:
    alone = wb.sampling.OwnedGraph.of(GRAPH, 0 * OWNER, 0)
    cooperative = wb.cooperative.CooperativeSampler(SAMPLER, alone)
    with pytest.raises(IndexError, match="edge_ids contains 400, which is not an edge"):
        cooperative.sample(alone.graph, SEEDS, exclude_edges=torch.tensor([400]))


@pytest.mark.parametrize("exchanging", [False, True])
def test_a_rank_without_micro_batches_knows_whether_others_exchange_rows(
    monkeypatch: pytest.MonkeyPatch, exchanging: bool
) -> None:
    monkeypatch.setattr(cooperative_step, "gather_numbers", lambda value, group: [value, 2 + exchanging / 2])
    refused = pytest.raises(ValueError, match=r"ranks have \[0, 2\] micro-batches") if exchanging else nullcontext()
    with refused:
        cooperative_step._check_equally_many([], None)
