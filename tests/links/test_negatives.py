"""Negatives against brute force, their distribution, and the edges that they avoid or that are masked."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from scipy import stats

from tests.strategies import graphs, random_graph
from workbench.core.graph import Graph
from workbench.kernels.csr import count_pairs, count_pairs_torch
from workbench.kernels.hash import derive_key
from workbench.links.edge_batch import EdgeBatch
from workbench.links.negatives import Negatives, attempt_bits, entry_bits, entry_keys, false_negatives, sample_negatives
from workbench.nn.decoders import DistMult
from workbench.nn.pair_losses import pair_scores

GRAPH = random_graph(30, 200, seed=1, num_edge_types=3)
ENDS = st.sampled_from(("src", "dst"))


def edges_of(graph: Graph) -> list[tuple[int, int, int]]:
    dst = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees()).tolist()
    types = [0] * graph.num_edges if graph.edge_type is None else graph.edge_type.tolist()
    return list(zip(graph.indices.tolist(), dst, types, strict=True))


@given(st.integers(0, 5), st.integers(1, 7), st.integers(-(2**63), 2**63 - 1), st.integers(0, 9), ENDS)
def test_an_entry_depends_on_its_row_and_column_alone(rows, count, seed, step, end):
    drawn = sample_negatives(1000, (rows, count), seed=seed, step=step, end=end)
    assert drawn.shape == (rows, count)
    larger = sample_negatives(1000, (rows + 2, count + 3), seed=seed, step=step, end=end)
    assert torch.equal(larger[:rows, :count], drawn)


def test_seeds_steps_and_ends_are_independent():
    changes: list[dict[str, Any]] = [{"seed": 1}, {"step": 1}, {"end": "src"}]
    base = sample_negatives(10**9, (50, 40))
    others = [sample_negatives(10**9, (50, 40), **change) for change in changes]
    assert all(int((base == other).sum()) == 0 for other in others)
    assert sample_negatives(2**40, (10, 10)).max() > 2**31  # beyond 32 bits
    assert base[0, :2].tolist() == [_word(0, 0) % 10**9, _word(0, 1) % 10**9]


def _word(row: int, column: int) -> int:
    """The variate of an entry, from the definition of the generator in Python's integers."""
    gamma, mask = 0x9E3779B97F4A7C15, 2**64 - 1

    def mix(word: int) -> int:
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & mask
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & mask
        return word ^ (word >> 31)

    key = derive_key(0, 7, 0, 1)  # seed, purpose, step, dst
    for index in (row, column, 0):
        key = mix((key + (index + 1) * gamma) & mask)
    return key & (2**63 - 1)


@pytest.mark.parametrize("end", ["src", "dst"])
def test_fractions_by_degree(end):
    drawn = sample_negatives(GRAPH, (2000, 8), end=end, by_degree=0.5, seed=3)
    ends = torch.tensor([(s if end == "src" else d) for s, d, _ in edges_of(GRAPH)])
    by_degree = torch.bincount(ends, minlength=30) / GRAPH.num_edges
    for columns, expected in ((drawn[:, :4], torch.full((30,), 1 / 30)), (drawn[:, 4:], by_degree)):
        observed = torch.bincount(columns.flatten(), minlength=30) / columns.numel()
        assert ((observed - expected).abs() <= 5 * (expected / columns.numel()).sqrt() + 1e-9).all()


def test_a_pool_replaces_the_graphs_edges():
    drawn = sample_negatives(100, (40, 10), by_degree=0.3, pool=torch.tensor([7, 7, 9]))
    assert set(drawn[:, 7:].flatten().tolist()) == {7, 9} and len(drawn[:, :7].unique()) > 50


@given(graphs(), st.data(), ENDS, st.sampled_from((0.0, 0.4)), st.booleans())
def test_avoided_edges(graph, data, end, by_degree, typed):
    kept = torch.tensor(data.draw(st.lists(st.integers(0, graph.num_nodes - 1), min_size=1, max_size=6)))
    relation = torch.arange(len(kept)) % 3 if typed else None
    facts = {(s, d) + ((r,) if typed and graph.edge_type is not None else ()) for s, d, r in edges_of(graph)}
    options = {"end": end, "by_degree": by_degree if graph.num_edges else 0.0}

    def fact(node: int, row: int) -> tuple[int, ...]:
        pair = (node, int(kept[row])) if end == "src" else (int(kept[row]), node)
        return (*pair, row % 3) if typed and graph.edge_type is not None else pair

    def refused(node: int, row: int) -> bool:
        return node == int(kept[row]) or fact(node, row) in facts

    drawn = None
    with suppress(ValueError):
        drawn = sample_negatives(graph, (len(kept), 5), **options, kept=kept, relation=relation)
    if drawn is None:
        saturated = [all(refused(node, row) for node in range(graph.num_nodes)) for row in range(len(kept))]
        assert any(saturated) or options["by_degree"]  # all ends of edges may be those of this node
        return
    plain = sample_negatives(graph, (len(kept), 5), **options)
    for row, (ours, theirs) in enumerate(zip(drawn.tolist(), plain.tolist(), strict=True)):
        assert not any(refused(node, row) for node in ours)
        assert all(mine == other or refused(other, row) for mine, other in zip(ours, theirs, strict=True))


def test_a_node_with_edges_to_all_others_is_refused():
    star = Graph.from_edges([0] * 5, range(5), num_nodes=5)
    message = "100 draws for pair 1 all gave edges: node 0 has an edge with nearly all nodes to draw from; omit {}, and"
    with pytest.raises(ValueError, match=message.format("kept")):
        sample_negatives(star, (2, 1), kept=torch.tensor([1, 0]))
    with pytest.raises(ValueError, match=message.format("avoid_edges")):
        Negatives(1, avoid_edges=True).draw(star, torch.tensor([1, 0]), torch.tensor([2, 3]))


@given(graphs(), st.data(), st.booleans())
def test_false_negatives_equal_a_search(graph, data, shared):
    node = st.integers(0, graph.num_nodes - 1)
    pairs = data.draw(st.integers(1, 6))
    draw_ids = lambda *shape: torch.tensor(  # noqa: E731
        data.draw(st.lists(node, min_size=torch.Size(shape).numel(), max_size=torch.Size(shape).numel()))
    ).view(shape)
    chunks = data.draw(st.integers(1, pairs)) if shared else None
    batch = EdgeBatch.from_pairs(
        draw_ids(pairs),
        draw_ids(pairs),
        negative_src=draw_ids(chunks or pairs, 2),
        negative_dst=draw_ids(chunks or pairs, 2),
        relation=torch.arange(pairs) % 2,
        chunks=chunks,
    )
    typed = graph.edge_type is not None
    facts = {(s, d, r if typed else 0) for s, d, r in edges_of(graph)}
    flat = batch.per_pair()
    assert flat.neg_src is not None and flat.neg_dst is not None
    ends = torch.stack([batch.seeds[flat.neg_src], batch.seeds[flat.neg_dst]], 1).tolist()
    count = batch.num_negatives
    expected = [(s, d, (i // count) % 2 if typed else 0) in facts for i, (s, d) in enumerate(ends)]
    assert false_negatives(batch, graph).flatten().tolist() == expected


def test_counts_of_edges_equal_torch():
    row, col, wanted = torch.randint(30, (3, 60), generator=torch.Generator().manual_seed(0))
    for types in ((), (GRAPH.edge_type, wanted % 3)):
        args = GRAPH.indptr, GRAPH.indices, row, col, *types
        assert torch.equal(count_pairs(*args), count_pairs_torch(*args))
    assert int(count_pairs(GRAPH.indptr, GRAPH.indices, row, col).max()) > 1


def test_options_draw_both_ends():
    src, dst = torch.tensor([1, 2, 3, 4, 5]), torch.tensor([6, 7, 8, 9, 10])
    shared = Negatives(4, chunks=2, ends="both", by_degree=0.5, seed=5).draw(GRAPH, src, dst, step=3)
    assert shared.num_negatives == 8 and shared.chunk is not None and shared.chunk.tolist() == [0, 0, 0, 1, 1]
    for end, ids in (("src", shared.neg_src), ("dst", shared.neg_dst)):
        assert ids is not None
        assert torch.equal(shared.seeds[ids], sample_negatives(GRAPH, (2, 4), end=end, by_degree=0.5, seed=5, step=3))
    alone = Negatives(3, ends="both", avoid_edges=True).draw(GRAPH, src, dst)
    assert alone.num_negatives == 6 and alone.chunk is None and not false_negatives(alone, GRAPH).any()
    assert Negatives(2, chunks=10).draw(100, src, dst).num_chunks == 5
    own = Negatives(50, chunks=1, by_degree=1.0, from_batch=True).draw(100, src, dst)
    assert own.neg_dst is not None and set(own.seeds[own.neg_dst].flatten().tolist()) == set(dst.tolist())


def test_either_end_is_replaced_at_random():
    graph = random_graph(200, 1500, seed=3)
    src, dst = graph.indices.long(), torch.repeat_interleave(torch.arange(200), graph.in_degrees())
    both, either = (Negatives(2, ends=ends, avoid_edges=True, seed=4) for ends in ("both", "either"))
    candidates, batch = both.draw(graph, src, dst, step=3), either.draw(graph, src, dst, step=3)
    assert batch.num_negatives == 2 and candidates.num_negatives == 4

    def pairs_of(batch: EdgeBatch) -> list[list[tuple[int, int]]]:
        assert batch.neg_src is not None and batch.neg_dst is not None
        ends = torch.stack([batch.seeds[batch.neg_src], batch.seeds[batch.neg_dst]], 1)
        return [[(s, d) for s, d in row] for row in ends.view(batch.num_pairs, -1, 2).tolist()]

    replaced = []
    for u, v, others, found in zip(src.tolist(), dst.tolist(), pairs_of(candidates), pairs_of(batch), strict=True):
        for column, (a, b) in enumerate(found):
            assert (a, b) in (others[column], others[2 + column]) and (a == u or b == v) and a != b
            replaced.append(b == v)
    assert not false_negatives(batch, graph).any()
    halves = [sum(replaced[column::2]) for column in (0, 1)]
    assert all(stats.binomtest(half, 1500, 0.5).pvalue > 1e-6 for half in halves)
    agreeing = sum(a == b for a, b in zip(replaced[::2], replaced[1::2], strict=True))
    assert stats.binomtest(agreeing, 1500, 0.5).pvalue > 1e-6


def test_either_end_is_the_other_one_where_all_draws_are_edges():
    """Every node but 0 has an edge to 0: no source replaces another, so 0 is replaced for every coin."""
    star = Graph.from_edges(range(1, 20), [0] * 19, num_nodes=20)
    src, dst = torch.arange(1, 13), torch.zeros(12, dtype=torch.int64)
    either, by_coin = Negatives(3, ends="either", avoid_edges=True, seed=1), Negatives(3, ends="either", seed=1)
    batch, coin = either.draw(star, src, dst), by_coin.draw(star, src, dst)
    assert batch.neg_src is not None and batch.neg_dst is not None and coin.neg_src is not None
    replaced, kept = batch.seeds[batch.neg_dst], src.repeat_interleave(3)
    assert torch.equal(batch.seeds[batch.neg_src], kept) and not false_negatives(batch, star).any()
    assert torch.equal(replaced.view(12, 3), sample_negatives(star, (12, 3), kept=src, seed=1))
    assert not torch.equal(coin.seeds[coin.neg_src], kept)  # the coin chose some sources
    turned = Graph.from_edges([0] * 19, range(1, 20), num_nodes=20)
    batch = either.draw(turned, dst, src)
    assert batch.neg_dst is not None and torch.equal(batch.seeds[batch.neg_dst], kept)
    assert not false_negatives(batch, turned).any()


def test_either_end_is_refused_where_all_draws_of_both_are_edges():
    complete = Graph.from_edges(*torch.ones(5, 5).nonzero().T)
    src, dst = torch.tensor([3, 1]), torch.tensor([4, 2])
    with pytest.raises(ValueError, match=r"pair 0 all gave edges: nodes 3 and 4 have an .* omit avoid_edges"):
        Negatives(2, ends="either", avoid_edges=True).draw(complete, src, dst)


@pytest.mark.parametrize("ends", ["src", "dst", "both", "either"])
@pytest.mark.parametrize("options", [{}, {"chunks": 4}, {"avoid_edges": True}, {"by_degree": 0.5, "from_batch": True}])
def test_without_pairs_there_are_no_negatives(ends, options):
    if ends == "either" and "chunks" in options:
        return
    none = torch.empty(0, dtype=torch.int64)
    batch = Negatives(3, ends=ends, **options).draw(GRAPH, none, none, relation=none).validate()
    assert (batch.num_pairs, batch.num_chunks, len(batch.seeds)) == (0, 0, 0)
    replaced = {"src": [batch.neg_src], "dst": [batch.neg_dst]}.get(ends, [batch.neg_src, batch.neg_dst])
    shape = (0, 3) if "chunks" in options else (0,)
    assert all(ids is not None and ids.shape == shape for ids in replaced)
    assert (batch.chunk is not None) == ("chunks" in options) and batch.per_pair().num_pairs == 0
    scores = pair_scores(DistMult(4, num_relations=3), torch.randn(0, 4), batch)
    assert all(s.positive.numel() == s.negative.numel() == 0 for s in scores)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_relations_may_have_any_dtype_of_edge_types(dtype):
    src, relation = torch.arange(12), torch.arange(12) % 3
    assert GRAPH.edge_type is not None
    graph = replace(GRAPH, edge_type=GRAPH.edge_type.to(dtype))
    negatives = Negatives(5, ends="both", avoid_edges=True)
    batch, expected = (
        negatives.draw(g, src, src + 9, relation=r) for g, r in ((graph, relation.to(dtype)), (GRAPH, relation))
    )
    assert torch.equal(batch.seeds, expected.seeds) and torch.equal(batch.neg_dst, expected.neg_dst)  # type: ignore[arg-type]
    assert torch.equal(batch.relation.long(), relation)  # type: ignore[union-attr]
    assert torch.equal(false_negatives(batch, graph), torch.zeros(12, 10, dtype=torch.bool))


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: sample_negatives(0, (1, 1)), ValueError, "number of nodes is 0"),
        (lambda: sample_negatives("g", (1, 1)), TypeError, "graph is a str; pass a Graph or a number"),  # type: ignore[arg-type]
        (lambda: sample_negatives(5, (1, 0)), ValueError, "negatives per row is 0"),
        (lambda: sample_negatives(5, (1, 1), end="head"), ValueError, "choose from dst, src"),
        (lambda: sample_negatives(5, (1, 1), by_degree=1.5), ValueError, "by_degree is 1.5"),
        (
            lambda: sample_negatives(5, (1, 1), by_degree=0.5),
            ValueError,
            "no edges to draw from; pass a Graph with edges, pool=",
        ),
        (lambda: sample_negatives(5, (1, 1), pool=torch.tensor([5])), IndexError, "pool contains 5"),
        (lambda: sample_negatives(5, (1, 1), kept=torch.tensor([0])), TypeError, "kept needs the edges of a Graph"),
        (lambda: sample_negatives(GRAPH, (2, 1), kept=torch.tensor([0])), ValueError, "kept has shape"),
        (lambda: sample_negatives(GRAPH, (1, 1), relation=torch.tensor([0])), ValueError, "kept is not"),
        (lambda: sample_negatives(GRAPH, (2**30, 2**30)), MemoryError, "draw fewer, or share them in chunks"),
        (lambda: sample_negatives(GRAPH, (1, 1), seed=0.5), ValueError, "seed is 0.5"),  # type: ignore[arg-type]
        (
            lambda: Negatives(1, avoid_edges=True).draw(5, torch.tensor([0]), torch.tensor([1])),
            TypeError,
            "avoid_edges needs the edges of a Graph, but graph is the number 5; pass the Graph, or omit avoid_edges",
        ),
        (
            lambda: Negatives(1, avoid_edges=True).draw(GRAPH, torch.tensor([30]), torch.tensor([1])),
            IndexError,
            "src contains 30",
        ),
        (
            lambda: Negatives(1, avoid_edges=True).draw(GRAPH, torch.tensor([3, 4]), torch.tensor([1])),
            ValueError,
            r"dst has shape \(1,\); its first dimension must be 2",
        ),
        (lambda: Negatives(5, chunks=2, avoid_edges=True), ValueError, "mask false_negatives"),
        (lambda: Negatives(5, ends="all"), ValueError, "choose from both, dst, either, src"),
        (lambda: Negatives(5, chunks=2, ends="either"), ValueError, "chooses an end per pair.*omit chunks"),
        (lambda: false_negatives(GRAPH, GRAPH), TypeError, "batch is a Graph; pass an EdgeBatch"),  # type: ignore[arg-type]
    ],
)
def test_rejects(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_uniform_negatives_may_come_from_some_nodes_alone():
    some = torch.tensor([3, 7, 8, 20, 29])
    of_all = sample_negatives(GRAPH, (6, 50), by_degree=0.5, seed=4)
    of_some = sample_negatives(GRAPH, (6, 50), by_degree=0.5, seed=4, nodes=some)
    assert torch.equal(of_some[:, 25:], of_all[:, 25:])  # in proportion to degrees: as before
    assert set(of_some[:, :25].flatten().tolist()) == set(some.tolist())
    assert torch.equal(sample_negatives(GRAPH, (6, 50), by_degree=0.5, seed=4, nodes=torch.arange(30)), of_all)
    with pytest.raises(ValueError, match="nodes to draw from is 0"):
        sample_negatives(GRAPH, (1, 1), nodes=some[:0])


def test_bits_of_entries_equal_those_in_plain_torch() -> None:
    key, device = -(2**62) + 12345, torch.device("cpu")
    plain = attempt_bits(entry_keys(key, 7, 5, device), 0)
    assert torch.equal(entry_bits(key, 7, 5, device), plain) and (plain >= 0).all()
