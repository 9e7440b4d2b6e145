"""NeighborSampler: exact inclusion probabilities, the torch form as oracle, and what must not change a draw."""

import itertools
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import workbench as wb
from tests.strategies import graphs, random_graph
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, stream
from workbench.kernels.threads import get_num_threads, set_num_threads
from workbench.sampling.layers import candidates
from workbench.sampling.neighbor import FullNeighborSampler, NeighborSampler
from workbench.sampling.race import draw_weighted, draw_weighted_torch
from workbench.sampling.subset import draw_uniform, draw_uniform_torch

FALSE_ALARM = 1e-6  # of one statistical test; seeds are fixed, so a pass stays a pass


def star(degree: int, weights: list[float] | None = None) -> Graph:
    """Node 0 with in-edges from 1 … degree."""
    indptr = torch.full((degree + 2,), degree)
    indptr[0] = 0
    weight = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    return Graph(indptr, torch.arange(1, degree + 1, dtype=torch.int32), edge_weight=weight)


def rows_of(mb: wb.MiniBatch, layer: int = -1) -> list[list[int]]:
    """Raw sources of every destination of a block."""
    block = mb.blocks[layer]
    raw = mb.node_ids[block.indices.long()].tolist()
    ends = block.indptr.tolist()
    return [raw[a:b] for a, b in itertools.pairwise(ends)]


def draws_of_star(sampler: NeighborSampler, graph: Graph, count: int) -> list[tuple[int, ...]]:
    return [tuple(rows_of(sampler.sample(graph, torch.tensor([0]), step=step))[0]) for step in range(count)]


def assert_equally_likely(outcomes: list[tuple[int, ...]], support: set[tuple[int, ...]]) -> None:
    assert set(outcomes) <= support
    counts = [sum(o == s for o in outcomes) for s in sorted(support)]
    assert stats.chisquare(counts).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("degree", "fanout"), [(4, 1), (5, 2), (5, 4), (6, 3)])
def test_every_subset_is_equally_likely(degree: int, fanout: int) -> None:
    """Stronger than single and pair inclusion: the law of the whole set."""
    support = set(itertools.combinations(range(1, degree + 1), fanout))
    drawn = [tuple(sorted(row)) for row in draws_of_star(NeighborSampler([fanout]), star(degree), 3000)]
    assert_equally_likely(drawn, support)


@pytest.mark.parametrize(("degree", "fanout"), [(90, 7), (300, 100)])
def test_single_and_pair_inclusion(degree: int, fanout: int) -> None:
    """P(i drawn) = k/d and P(i and j drawn) = k(k−1)/(d(d−1)), on both sides of the change of algorithm."""
    trials = 2000
    drawn = torch.zeros(trials, degree)
    for step, row in enumerate(draws_of_star(NeighborSampler([fanout], seed=3), star(degree), trials)):
        assert len(set(row)) == fanout
        drawn[step, torch.tensor(row) - 1] = 1
    single = drawn.sum(0).numpy()
    pairs = (drawn.T @ drawn)[tuple(torch.triu_indices(degree, degree, 1))].numpy()
    for counts, chance in ((single, fanout / degree), (pairs, fanout * (fanout - 1) / degree / (degree - 1))):
        threshold = FALSE_ALARM / len(counts)
        low, high = stats.binom.ppf([threshold / 2, 1 - threshold / 2], trials, chance)
        assert low <= counts.min()
        assert counts.max() <= high


def test_with_replacement_every_sequence_is_equally_likely() -> None:
    support = set(itertools.product(range(1, 4), repeat=2))
    assert_equally_likely(draws_of_star(NeighborSampler([2], replace=True), star(3), 3000), support)


def test_weighted_draws_follow_the_weights() -> None:
    """Without replacement: P(first i, then j) = w_i/W · w_j/(W − w_i). Weight 0 is never drawn."""
    weights = [1.0, 2.0, 5.0, 0.0]
    total, trials = sum(weights), 4000
    sampler = NeighborSampler([2], weighted=True)
    drawn = draws_of_star(sampler, star(4, weights), trials)
    pairs = list(itertools.permutations(range(1, 4), 2))
    expected = [weights[i - 1] / total * weights[j - 1] / (total - weights[i - 1]) * trials for i, j in pairs]
    assert set(drawn) <= set(pairs)
    assert stats.chisquare([drawn.count(p) for p in pairs], expected).pvalue > FALSE_ALARM
    assert sorted(rows_of(NeighborSampler([9], weighted=True).sample(star(4, weights), torch.tensor([0])))[0]) == [
        1,
        2,
        3,
    ]


def test_weighted_draws_with_replacement() -> None:
    weights = [1.0, 3.0]
    drawn = draws_of_star(NeighborSampler([2], replace=True, weighted=True), star(2, weights), 3000)
    pairs = list(itertools.product((1, 2), repeat=2))
    expected = [weights[i - 1] * weights[j - 1] / 16 * len(drawn) for i, j in pairs]
    assert stats.chisquare([drawn.count(p) for p in pairs], expected).pvalue > FALSE_ALARM


def test_rows_and_layers_and_steps_are_independent() -> None:
    """Two rows of one batch, two layers and two steps: the joint law of what they draw is the product."""
    indptr = torch.tensor([0, 3, 6, 6, 6, 6])
    graph = Graph(indptr, torch.tensor([2, 3, 4, 2, 3, 4], dtype=torch.int32))
    one, two = NeighborSampler([1]), NeighborSampler([1, 1])
    seeds = torch.tensor([0, 1])
    table = {"rows": torch.zeros(3, 3), "steps": torch.zeros(3, 3), "layers": torch.zeros(3, 3)}
    for step in range(2000):
        now, after = (rows_of(one.sample(graph, seeds, step=2 * step + i)) for i in (0, 1))
        deep = two.sample(graph, seeds, step=step)
        table["rows"][now[0][0] - 2, now[1][0] - 2] += 1
        table["steps"][now[0][0] - 2, after[0][0] - 2] += 1
        table["layers"][rows_of(deep, 0)[0][0] - 2, rows_of(deep, 1)[0][0] - 2] += 1
    for counts in table.values():
        assert stats.chisquare(counts.flatten()).pvalue > FALSE_ALARM


@settings(max_examples=60, deadline=None)
@given(
    graph=graphs(max_nodes=9, max_edges=60),
    fanout=st.sampled_from([-1, 1, 2, 5, 70]),
    replace=st.booleans(),
    exclude=st.booleans(),
    seed=st.integers(-(2**63), 2**63 - 1),
    data=st.data(),
)
def test_numba_equals_torch(
    graph: Graph, fanout: int, replace: bool, exclude: bool, seed: int, data: st.DataObject
) -> None:
    nodes = torch.tensor(data.draw(st.permutations(range(graph.num_nodes))), dtype=torch.int64)
    excluded = None
    if exclude:
        excluded = torch.tensor(
            sorted(data.draw(st.sets(st.integers(0, max(0, graph.num_edges - 1))))), dtype=torch.int64
        )
        excluded = excluded[excluded < graph.num_edges]
    rows = candidates(graph, nodes, excluded)
    key = stream(seed, Purpose.SAMPLING)
    pairs = [
        [
            f(rows, graph.indices, fanout, replace=replace, key=key, positions=True)
            for f in (draw_uniform, draw_uniform_torch)
        ]
    ]
    if graph.edge_weight is not None:
        pairs.append([f(graph, rows, fanout, replace=replace, key=key) for f in (draw_weighted, draw_weighted_torch)])
    for ours, oracle in pairs:
        assert ours.positions is not None
        assert oracle.positions is not None
        assert torch.equal(ours.indptr, oracle.indptr)
        assert torch.equal(ours.positions, oracle.positions)
        assert torch.equal(ours.sources, oracle.sources)


@settings(max_examples=60, deadline=None)
@given(
    graph=graphs(max_nodes=12, max_edges=60),
    fanouts=st.lists(st.sampled_from([-1, 1, 2, 3]), min_size=1, max_size=3),
    data=st.data(),
)
def test_a_batch_is_what_it_says(graph: Graph, fanouts: list[int], data: st.DataObject) -> None:
    """Rows are sub-multisets of the in-edges of the right size; ids come in order of first appearance."""
    seeds = torch.tensor(data.draw(st.permutations(range(graph.num_nodes)))[:4], dtype=torch.int64)
    mb = NeighborSampler(fanouts, edge_ids=True).sample(graph, seeds, step=2)
    assert mb.step == 2
    assert mb.seeds.tolist() == seeds.tolist()
    assert mb.node_ids.unique().numel() == mb.num_inputs
    for block, fanout in zip(mb.blocks, fanouts, strict=True):
        block.validate()
        assert block.edge_ids is not None
        positions = graph.edge_positions(block.edge_ids)
        assert torch.equal(graph.indices[positions].long(), mb.node_ids[block.indices.long()])
        owner = torch.searchsorted(graph.indptr, positions, right=True) - 1
        assert torch.equal(owner, mb.node_ids[block.destinations.long()])
        assert positions.unique().numel() == positions.numel()
        degrees = graph.in_degrees()[mb.node_ids[: block.num_dst]]
        assert torch.equal(block.in_degrees(), degrees if fanout < 0 else degrees.clamp(max=fanout))
        seen = torch.cat([torch.arange(block.num_dst), block.indices.long()]).tolist()
        assert list(dict.fromkeys(seen)) == list(range(block.num_src))


def test_full_sampler_keeps_rows_in_order() -> None:
    graph = random_graph(30, 200, seed=4)
    mb = FullNeighborSampler(2).sample(graph, torch.tensor([3, 0]))
    ends = graph.indptr.tolist()
    for block, rows in zip(mb.blocks, (rows_of(mb, 0), rows_of(mb, 1)), strict=True):
        for node, row in zip(mb.node_ids[: block.num_dst].tolist(), rows, strict=True):
            assert row == graph.indices[ends[node] : ends[node + 1]].tolist()


def big_graph() -> Graph:
    """Large enough for several threads in every kernel."""
    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, 30_000, (2, 600_000), generator=generator)
    return Graph.from_edges(src, dst, num_nodes=30_000, edge_weight=torch.rand(600_000, generator=generator))


def same(a: wb.MiniBatch, b: wb.MiniBatch) -> bool:
    def content(mb: wb.MiniBatch) -> list[object]:
        tensors = [
            mb.node_ids,
            *(t for block in mb.blocks for t in (block.indptr, block.indices, block.edge_ids, block.edge_weight)),
        ]
        return [None if t is None else t.tolist() for t in tensors]

    return content(a) == content(b)


@pytest.mark.parametrize("options", [{}, {"replace": True}, {"weighted": True}])
def test_any_number_of_threads_gives_the_same_batch(options: dict[str, bool]) -> None:
    graph, before = big_graph(), get_num_threads()
    seeds, exclude = torch.arange(0, 30_000, 3), torch.arange(0, 600_000, 7)
    results = []
    try:
        for threads in (1, 2, 7):
            set_num_threads(threads)
            sampler = NeighborSampler([4, 6], edge_ids=True, **options)
            results.append(sampler.sample(graph, seeds, step=5, exclude_edges=exclude))
    finally:
        set_num_threads(before)
    assert same(results[0], results[1])
    assert same(results[0], results[2])


def test_a_seeds_row_does_not_depend_on_the_others() -> None:
    graph = big_graph()
    seeds = torch.arange(5000)
    order = torch.randperm(5000, generator=torch.Generator().manual_seed(1))
    sampler = NeighborSampler([5])
    straight, shuffled = (rows_of(sampler.sample(graph, s, step=1)) for s in (seeds, seeds[order]))
    assert [straight[i] for i in order.tolist()] == shuffled
    assert rows_of(sampler.sample(graph, seeds[40:41], step=1)) == [straight[40]]


def test_batches_do_not_see_each_other() -> None:
    """Maps from raw to local ids are reused: batches in other orders, on other graphs and in other threads agree."""
    big, small, sampler = big_graph(), random_graph(50, 300, seed=1), NeighborSampler([3, 3])
    seeds = {id(big): torch.arange(100, 400), id(small): torch.arange(20)}
    first = {(id(g), s): sampler.sample(g, seeds[id(g)], step=s) for g in (big, small) for s in range(4)}

    def stream(graph: Graph) -> Iterator[wb.MiniBatch]:
        return wb.prefetch(sampler.sample(graph, seeds[id(graph)], step=step) for step in range(4))

    streams = [stream(graph) for graph in (small, big, small)]
    for step, batches in enumerate(zip(*streams, strict=True)):
        for graph, mb in zip((small, big, small), batches, strict=True):
            assert same(mb, first[id(graph), step])


def test_excluded_edges_and_no_others_are_left_out() -> None:
    graph = random_graph(20, 300, seed=2)
    ids = torch.arange(0, 300, 3)
    full = NeighborSampler([-1], edge_ids=True).sample(graph, torch.arange(20), exclude_edges=ids)
    assert full.blocks[0].edge_ids is not None
    assert set(full.blocks[0].edge_ids.tolist()) == set(range(300)) - set(ids.tolist())
    for options in ({}, {"weighted": True}):
        weighted = random_graph(20, 300, seed=2, edge_weight=torch.float32)
        some = NeighborSampler([4], edge_ids=True, **options).sample(weighted, torch.arange(20), exclude_edges=ids)
        assert some.blocks[0].edge_ids is not None
        assert not set(some.blocks[0].edge_ids.tolist()) & set(ids.tolist())


def test_draws_are_uniform_over_what_is_not_excluded() -> None:
    graph, excluded = star(7), torch.tensor([0, 3, 6])
    support: set[tuple[int, ...]] = set(itertools.combinations((2, 3, 5, 6), 2))
    sampler = NeighborSampler([2])
    drawn = [
        tuple(sorted(rows_of(sampler.sample(graph, torch.tensor([0]), step=s, exclude_edges=excluded))[0]))
        for s in range(3000)
    ]
    assert_equally_likely(drawn, support)


def test_blocks_carry_weights_and_types() -> None:
    graph = random_graph(20, 200, seed=5, edge_weight=torch.float32, num_edge_types=3)
    block = NeighborSampler([4], edge_ids=True).sample(graph, torch.arange(20)).blocks[0]
    assert block.edge_ids is not None
    assert graph.edge_weight is not None
    assert graph.edge_type is not None
    positions = graph.edge_positions(block.edge_ids)
    assert block.edge_weight is not None
    assert torch.equal(block.edge_weight, graph.edge_weight[positions])
    assert block.edge_type is not None
    assert torch.equal(block.edge_type, graph.edge_type[positions])
    assert NeighborSampler([4], weighted=True).sample(graph, torch.arange(20)).blocks[0].edge_weight is None


def test_edges_without_ends() -> None:
    """No seeds, no in-edges, self loops, multi-edges, int64 indices."""
    empty = NeighborSampler([3, 2]).sample(random_graph(5, 9), torch.empty(0, dtype=torch.int64))
    assert empty.num_inputs == empty.num_seeds == empty.num_edges == 0
    lonely = NeighborSampler([3], replace=True).sample(star(3), torch.tensor([2, 3]))
    assert lonely.num_edges == 0
    assert lonely.blocks[0].in_degrees().tolist() == [0, 0]
    looped = Graph(torch.tensor([0, 4]), torch.zeros(4, dtype=torch.int64))
    mb = NeighborSampler([3]).sample(looped, torch.tensor([0], dtype=torch.int32))
    assert rows_of(mb) == [[0, 0, 0]]
    assert mb.num_inputs == 1
    assert mb.blocks[0].indices.dtype == torch.int32


def test_offsets_beyond_two_to_the_31(tmp_path) -> None:
    """A row that begins at edge 2³¹ + 5 of a file that is nearly all hole."""
    edges = 2**31 + 9
    with open(tmp_path / "indices", "wb") as file:
        file.truncate(edges * 4)
    indices = torch.from_file(str(tmp_path / "indices"), shared=False, size=edges, dtype=torch.int32)
    indices[-4:] = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    graph = Graph(torch.tensor([0, edges - 4, edges, edges, edges, edges]), indices)
    mb = NeighborSampler([4, 2], edge_ids=True).sample(graph, torch.tensor([1]))
    assert mb.blocks[0].edge_ids is not None
    assert set(rows_of(mb, 1)[0]) <= {1, 2, 3, 4}
    assert len(set(rows_of(mb, 1)[0])) == 2
    assert mb.blocks[0].edge_ids[:4].tolist() == list(range(edges - 4, edges))
    few = NeighborSampler([2]).sample(graph, torch.tensor([0]))  # a row of 2³¹ + 5 edges
    assert rows_of(few) == [[0, 0]]


def test_a_graph_sampled_in_a_forked_worker() -> None:
    """As in a DataLoader with workers: the pool and the maps were used before the fork."""
    program = """
import os, torch, workbench as wb
src, dst = torch.randint(0, 9000, (2, 200000), generator=torch.Generator().manual_seed(0))
graph = wb.Graph.from_edges(src, dst, num_nodes=9000)
take = lambda: wb.NeighborSampler([5, 5]).sample(graph, torch.arange(9000)).node_ids.sum().item()
before = take()
child = os.fork()
if child == 0:
    os._exit(0 if take() == before else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and take() == before
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=120)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NeighborSampler([]), "one per layer"),
        (lambda: NeighborSampler([3, 0]), r"\[3, 0\]"),
        (lambda: NeighborSampler([-2]), r"at least 1 \(and at most .*\), or -1 for all"),
        (lambda: FullNeighborSampler(0), "num_layers is 0; it must be a whole number of at least 1"),
        (lambda: FullNeighborSampler(10**12), "num_layers is 1000000000000; .* from 1 to 1000"),
        (lambda: NeighborSampler([99999999999999999999, 5]), "fanouts are .99999999999999999999, 5."),
        (lambda: NeighborSampler([2], seed=1.5), r"seed is 1\.5; it must be a whole number"),  # pyright: ignore
        (lambda: NeighborSampler([2], seed="7"), "seed is '7'; it must be a whole number"),  # pyright: ignore
        (lambda: NeighborSampler([2], seed=2**64), r"seed is 18446744073709551616; it must lie in \[-2\*\*63"),
        (lambda: NeighborSampler([2]).sample(star(3), torch.tensor([1]), step=0.5), "step is 0.5"),  # pyright: ignore
        (lambda: NeighborSampler([2]).sample(star(3), torch.tensor([1, 2, 1])), "1 more than once"),
        (lambda: NeighborSampler([2], weighted=True).sample(star(3), torch.tensor([0])), "edge_weight.*missing"),
        (
            lambda: NeighborSampler([2], weighted=True).sample(star(2, [1.0, -1.0]), torch.tensor([0])),
            "-1.0 at CSR position 1",
        ),
        (lambda: NeighborSampler([2], weighted=True).sample(star(2, [1.0, float("nan")]), torch.tensor([0])), "nan"),
    ],
)
def test_bad_values_are_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("fanouts", ["10,25", 10, [True], ["3"], None, [[3]]])
def test_fanouts_of_another_type_are_named(fanouts) -> None:
    with pytest.raises(TypeError, match=r"fanouts are .*; pass a list of whole numbers, input layer first: \[10, 25\]"):
        NeighborSampler(fanouts)


def test_draws_that_no_memory_holds_are_refused() -> None:
    sampler = NeighborSampler([2**61], replace=True)
    with pytest.raises(MemoryError, match=r"neighbours of each of 1 nodes with replacement takes .* replace=False"):
        sampler.sample(star(3), torch.tensor([0]))


def test_a_graph_of_another_library_is_named() -> None:
    with pytest.raises(TypeError, match="graph is an object; pass a Graph"):
        NeighborSampler([2]).sample(object(), torch.tensor([0]))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="exclude_edges must be an int64 or int32 tensor, not list"):
        NeighborSampler([2]).sample(star(3), torch.tensor([0]), exclude_edges=[1])  # pyright: ignore


def test_bad_ids_are_named() -> None:
    sampler = NeighborSampler([2])
    with pytest.raises(IndexError, match=r"seeds holds 4; .*\[0, 4\)"):
        sampler.sample(star(3), torch.tensor([4]))
    with pytest.raises(IndexError, match="-1"):
        sampler.sample(star(3), torch.tensor([-1]))
    with pytest.raises(TypeError, match="float32"):
        sampler.sample(star(3), torch.tensor([1.0]))
    with pytest.raises(IndexError, match="edge_ids holds 3"):
        sampler.sample(star(3), torch.tensor([0]), exclude_edges=torch.tensor([3]))
    assert sampler.sample(star(3), torch.tensor([0])).num_seeds == 1  # a refused batch leaves nothing behind


def test_wide_rows_agree_on_both_algorithms() -> None:
    """Fanouts around the change from comparing to hashing give valid, distinct rows equal to torch's."""
    graph = star(5000)
    rows = candidates(graph, torch.tensor([0]), None)
    for fanout in (63, 64, 65, 1000, 4999, 5000):
        options = {"replace": False, "key": 11, "positions": True}
        ours, oracle = (f(rows, graph.indices, fanout, **options) for f in (draw_uniform, draw_uniform_torch))
        assert ours.sources.unique().numel() == fanout
        assert torch.equal(ours.sources, oracle.sources)


def test_weights_too_small_for_finite_times_are_drawn_all_the_same() -> None:
    tiny = torch.full((3,), 1e-310, dtype=torch.float64)
    graph = Graph.from_edges([0, 1, 2], [3, 3, 3], num_nodes=4, edge_weight=tiny)
    rows = candidates(graph, torch.tensor([3]), None)
    ours, oracle = (f(graph, rows, 4, replace=True, key=5) for f in (draw_weighted, draw_weighted_torch))
    assert torch.equal(ours.sources, oracle.sources) and set(ours.sources.tolist()) <= {0, 1, 2}


def test_edge_ids_of_a_subgraph_can_be_excluded() -> None:
    graph = Graph(torch.tensor([0, 2, 2]), torch.tensor([0, 1], dtype=torch.int32), torch.tensor([10, 20]))
    mb = NeighborSampler([2], edge_ids=True).sample(graph, torch.tensor([0]), exclude_edges=torch.tensor([20]))
    assert mb.blocks[0].edge_ids is not None and mb.blocks[0].edge_ids.tolist() == [10]


def test_a_fanout_beyond_all_degrees_costs_nothing() -> None:
    assert rows_of(NeighborSampler([2**40]).sample(star(3), torch.tensor([0]))) == [[1, 2, 3]]


def test_sources_out_of_range_are_refused_and_leave_nothing_behind() -> None:
    broken = Graph(torch.tensor([0, 3, 3]), torch.tensor([1, 400_000_000, 1], dtype=torch.int32))
    with pytest.raises(IndexError, match=r"400000000; sources lie in \[0, 2\)"):
        NeighborSampler([3, 3]).sample(broken, torch.tensor([0]))
    assert rows_of(NeighborSampler([2]).sample(star(1), torch.tensor([0]))) == [[1]]


def test_options_are_named_and_fanouts_whole() -> None:
    with pytest.raises(TypeError, match="positional"):
        NeighborSampler([2], True)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="float"):
        NeighborSampler([2.9])  # pyright: ignore[reportArgumentType]
