"""Random walks against a brute-force walker, their exact law on a tiny graph, and both implementations."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, strategies as st
from scipy import stats
from torch import Tensor

import workbench as wb
from tests.sampling.stars import FALSE_ALARM, rows_of, some_of
from tests.sampling.test_contract import assert_same_batch
from tests.strategies import graphs, random_graph
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, Variates, stream
from workbench.kernels.threads import get_num_threads, set_num_threads
from workbench.sampling.random_walk import (
    RandomWalkSampler,
    Walks,
    most_visited,
    most_visited_torch,
    pack_rows,
    pack_rows_torch,
)
from workbench.sampling.sampler import candidates, excluded_positions, row_offsets

_MASK = 2**64 - 1


def variate(key: int, index: int) -> int:
    """The hash in Python's integers: 64 bits."""
    word = (key + (index + 1) * 0x9E3779B97F4A7C15) & _MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)


def in_neighbors(graph: Graph, excluded: Tensor | None) -> list[list[int]]:
    """Each node's sources, in the order of the CSR, without those of excluded edges."""
    removed = set() if excluded is None else set(excluded.tolist())
    ends = graph.indptr.tolist()
    ids = range(graph.num_edges) if graph.edge_ids is None else graph.edge_ids.tolist()
    sources = [(s, e in removed) for s, e in zip(graph.indices.tolist(), ids, strict=True)]
    return [[s for s, gone in sources[a:b] if not gone] for a, b in itertools.pairwise(ends)]


def walk(rows: list[list[int]], node: int, number: int, key: int, sampler: RandomWalkSampler) -> Iterator[int]:
    """The nodes that a walk visits, one step after the other."""
    current = node
    for step in range(sampler.walk_length):
        coin, pick = (variate(key, 2 * (number * sampler.walk_length + step) + i) for i in (0, 1))
        restarts = step == 0 or (coin >> 11) * 2.0**-53 < sampler.restart_probability
        choices = rows[node] if restarts or not rows[current] else rows[current]
        current = choices[pick * len(choices) >> 64]
        yield current


def brute_force_row(
    rows: list[list[int]], node: int, sampler: RandomWalkSampler, layer: int, step: int
) -> list[tuple[int, int]]:
    """The neighbours of a node and their visits; `most_common` lists equal counts in order of first appearance."""
    key = variate(stream(sampler.seed, Purpose.SAMPLING, step, layer), node)
    visits = [v for number in range(sampler.num_walks) if rows[node] for v in walk(rows, node, number, key, sampler)]
    return Counter(visits).most_common(sampler.fanouts[layer])


OPTIONS = st.builds(
    RandomWalkSampler,
    st.lists(st.integers(1, 6), min_size=1, max_size=2),
    num_walks=st.integers(1, 9),
    walk_length=st.integers(1, 4),
    restart_probability=st.sampled_from((0.0, 0.3, 0.5, 1.0)),
    seed=st.integers(-(2**63), 2**63 - 1),
)


@given(graph=graphs(), sampler=OPTIONS, step=st.integers(0, 3), exclude=st.booleans(), data=st.data())
def test_rows_equal_those_of_a_brute_force_walker(
    graph: Graph, sampler: RandomWalkSampler, step: int, exclude: bool, data: st.DataObject
) -> None:
    ids = torch.arange(graph.num_edges) if graph.edge_ids is None else graph.edge_ids
    excluded = some_of(ids, data.draw(st.integers(0, 99))) if exclude else None
    rows = in_neighbors(graph, excluded)
    seeds = torch.tensor(data.draw(st.permutations(range(graph.num_nodes)))[:4], dtype=torch.int64)
    mb = sampler.sample(graph, seeds, step=step, exclude_edges=excluded)
    for layer, block in enumerate(mb.blocks):
        block.validate()
        expected = [brute_force_row(rows, v, sampler, layer, step) for v in mb.node_ids[: block.num_dst].tolist()]
        assert rows_of(mb, layer) == [[node for node, _ in row] for row in expected]
        assert block.edge_weight is not None and block.edge_weight.dtype == torch.float32
        weights = [count * len(row) / sum(c for _, c in row) for row in expected for _, count in row]
        assert torch.equal(block.edge_weight, torch.tensor(weights, dtype=torch.float64).float())
        assert block.edge_ids is block.edge_type is None


def copies(graph: Graph, count: int) -> Graph:
    """Disjoint copies of a graph: copy c of node v is c · num_nodes + v, whose variates are independent."""
    shift = torch.arange(count)[:, None]
    indptr = torch.cat([graph.indptr[:1], (graph.indptr[1:] + shift * graph.num_edges).flatten()])
    return Graph(indptr, (graph.indices + shift * graph.num_nodes).flatten())


def law_of_a_walk(rows: list[list[int]], node: int, sampler: RandomWalkSampler) -> dict[tuple[int, ...], float]:
    """The probability of every sequence of visits, by enumeration."""
    paths = {(node,): 1.0}
    for step in range(sampler.walk_length):
        longer: dict[tuple[int, ...], float] = defaultdict(float)
        for path, probability in paths.items():
            restart = 1.0 if step == 0 or not rows[path[-1]] else sampler.restart_probability
            for choices, share in ((rows[node], restart), (rows[path[-1]], 1 - restart)):
                for choice in choices if share else ():
                    longer[(*path, choice)] += probability * share / len(choices)
        paths = longer
    return {path[1:]: probability for path, probability in paths.items()}


@pytest.mark.parametrize(("num_walks", "walk_length", "restart"), [(1, 3, 0.5), (1, 4, 0.2), (2, 2, 0.5)])
def test_the_law_of_the_walks(num_walks: int, walk_length: int, restart: float) -> None:
    """Chi² against all paths of a graph with a dead end (4), a self loop (1) and a multi-edge (0 → 1).

    DGL's RandomWalkNeighborSampler ends a walk where this one restarts, so it draws from another law and is no oracle.
    """
    graph = Graph.from_edges([1, 2, 3, 0, 0, 1, 0, 4, 1], [0, 0, 0, 1, 1, 1, 2, 3, 3], num_nodes=5)
    sampler = RandomWalkSampler([9], num_walks=num_walks, walk_length=walk_length, restart_probability=restart, seed=5)
    law = {(): 1.0}
    one = law_of_a_walk(in_neighbors(graph, None), 0, sampler)
    for _ in range(num_walks):
        law = {(*a, *b): p * q for a, p in law.items() for b, q in one.items()}
    expected: dict[tuple[tuple[int, int], ...], float] = defaultdict(float)
    for path, probability in law.items():
        expected[tuple(Counter(path).most_common())] += probability
    count = 20_000
    drawn = sampler.draw(copies(graph, count), torch.arange(count) * 5, layer=0)
    assert drawn.weight is not None and abs(sum(expected.values()) - 1) < 1e-12
    lengths = drawn.indptr.diff()
    visits = (drawn.weight * (num_walks * walk_length) / lengths.repeat_interleave(lengths)).round().long()
    pairs = iter(zip((drawn.sources % 5).tolist(), visits.tolist(), strict=True))
    observed = Counter(tuple(next(pairs) for _ in range(length)) for length in lengths.tolist())
    assert observed.keys() <= expected.keys()
    likely = [outcome for outcome, probability in expected.items() if probability * count >= 5]
    table = [(observed[outcome], expected[outcome] * count) for outcome in likely]
    rest = count - sum(o for o, _ in table), count - sum(e for _, e in table)
    seen, wanted = zip(*table, *([rest] if rest[1] >= 1 else []), strict=True)
    scale = sum(seen) / sum(wanted)
    assert stats.chisquare(seen, [scale * count for count in wanted]).pvalue > FALSE_ALARM


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("exclude", [False, True])
def test_the_compiled_form_equals_torch(dtype: torch.dtype, exclude: bool) -> None:
    graph = random_graph(300, 1500, seed=4, index_dtype=dtype)
    excluded = some_of(torch.arange(1500), 3) if exclude else None
    rows = candidates(graph, torch.arange(300).flip(0), excluded_positions(graph, excluded))
    mixed = Variates(7, -9, math.cos(0.6), math.sin(0.6))
    settings = ((4, Walks(Variates(7), 9, 3, 0.5)), (30, Walks(Variates(-3), 5, 6, 0.1)), (1, Walks(mixed, 40, 3, 0.5)))
    for fanout, walks in settings:
        ours, theirs = (walk_all(graph, rows, walks, fanout) for walk_all in (most_visited, most_visited_torch))
        assert torch.equal(ours.kept, theirs.kept) and 0 in ours.kept.tolist()
        indptr = row_offsets(ours.kept)
        compiled, plain = pack_rows(ours, indptr, weighted=True), pack_rows_torch(theirs, indptr, weighted=True)
        assert compiled[0].dtype == plain[0].dtype == dtype and torch.equal(compiled[0], plain[0])
        assert compiled[1] is not None and plain[1] is not None and torch.equal(compiled[1], plain[1])


def test_threads_do_not_change_the_batch() -> None:
    graph, before = random_graph(3000, 20_000, seed=1), get_num_threads()
    sampler, exclude, batches = RandomWalkSampler([5, 5], num_walks=20), torch.arange(0, 20_000, 7), []
    try:
        for threads in (1, 2, 5):
            set_num_threads(threads)
            batches.append(sampler.sample(graph, torch.arange(0, 3000, 3), exclude_edges=exclude, step=2))
    finally:
        set_num_threads(before)
    for other in batches[1:]:
        assert_same_batch(batches[0], other)


@pytest.mark.parametrize("kappa", [1, 3, math.inf])
def test_nested_batches_share_the_walks_of_their_group(kappa: float) -> None:
    graph, seeds = random_graph(50, 600), torch.arange(20)
    nested, plain = RandomWalkSampler([4, 3], dependence=wb.Nested(kappa)), RandomWalkSampler([4, 3])
    for step in range(5):
        group = 0 if kappa == math.inf else step // int(kappa)
        assert torch.equal(
            nested.sample(graph, seeds, step=step).node_ids, plain.sample(graph, seeds, step=group).node_ids
        )


def test_smoothed_walks_follow_the_law_and_change_slowly() -> None:
    """Every batch has the law of independent ones; the next κ - 1 keep walks according to the angle between them.

    Of two in-neighbours, steps of correlation ρ take the same one with probability 1 - acos(ρ)/π (Sheppard's formula).
    """
    count, kappa = 40_000, 4
    graph = copies(Graph.from_edges([1, 2], [0, 0], num_nodes=3), count)
    sampler = RandomWalkSampler([1], num_walks=1, walk_length=1, dependence=wb.Smoothed(kappa))
    nodes = torch.arange(count) * 3
    picks = [sampler.draw(graph, nodes, layer=0, step=step).sources % 3 for step in range(2 * kappa + 1)]
    for i, j in itertools.combinations(range(kappa + 1), 2):
        expected = 1 - (j - i) / (2 * kappa)  # the angle between batches i and j is π(j - i)/(2κ)
        agreeing = int((picks[i] == picks[j]).sum())
        assert stats.binomtest(agreeing, count, expected).pvalue > FALSE_ALARM, (i, j)
    assert stats.binomtest(int((picks[0] == picks[2 * kappa]).sum()), count, 0.5).pvalue > FALSE_ALARM
    for pick in picks:
        assert stats.binomtest(int((pick == 1).sum()), count, 0.5).pvalue > FALSE_ALARM


def test_steps_layers_and_seeds_select_other_walks() -> None:
    graph, nodes = random_graph(50, 600), torch.arange(50)
    drawn = [
        RandomWalkSampler([10, 10], seed=seed).draw(graph, nodes, layer=layer, step=step).sources.tolist()
        for seed, layer, step in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))
    ]
    assert len(set(map(tuple, drawn))) == 4


def test_blocks_without_weights_have_the_same_neighbors() -> None:
    graph, seeds = random_graph(50, 600), torch.arange(9)
    weighted, plain = (RandomWalkSampler([4, 3], weighted=w).sample(graph, seeds) for w in (True, False))
    for a, b in zip(weighted.blocks, plain.blocks, strict=True):
        assert b.edge_weight is None and a.edge_weight is not None and torch.equal(a.indices, b.indices)
        sums = torch.zeros(a.num_dst).index_add_(0, a.destinations, a.edge_weight)
        assert torch.allclose(sums, a.in_degrees().float())


def test_a_source_outside_of_the_graph_is_refused() -> None:
    broken = Graph(torch.tensor([0, 1, 2]), torch.tensor([1, 7], dtype=torch.int32))
    with pytest.raises(IndexError, match=r"contains 7; sources must be in \[0, 2\)"):
        RandomWalkSampler([2]).draw(broken, torch.tensor([0]), layer=0)


@pytest.mark.parametrize(
    ("fanouts", "options", "error", "message"),
    [
        ([], {}, ValueError, "number of fanouts .* is 0"),
        ([2, -1], {}, ValueError, r"fanouts\[1\] is -1"),
        ([{0: 2}], {}, ValueError, r"fanouts\[0\] is \{0: 2\}"),
        (10, {}, TypeError, "fanouts is an int; pass one per layer"),
        ([2], {"num_walks": 0}, ValueError, "num_walks is 0"),
        ([2], {"num_walks": 2**20, "walk_length": 2}, ValueError, "walk_length is 2; .* from 1 to 1"),
        ([2], {"restart_probability": 1.5}, ValueError, "restart_probability is 1.5; it must be a probability"),
        ([2], {"restart_probability": None}, ValueError, "restart_probability is None"),
        ([2], {"seed": 0.5}, ValueError, "seed is 0.5"),
        ([2], {"dependence": 4}, TypeError, r"dependence is an int; pass Smoothed\(4\)"),
        ([2], {"edge_ids": True}, ValueError, "is not an edge of the graph; omit edge_ids"),
    ],
)
def test_bad_options_are_refused(fanouts: list, options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wb.RandomWalkSampler(fanouts, **options)
