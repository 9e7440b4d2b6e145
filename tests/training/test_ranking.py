from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

import workbench as wb
from tests.strategies import examples
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.nn.decoders import ENDS

ENTITIES, RELATIONS, DIM = 7, 3, 4
NODES = 600
TRIPLE = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))
DECODERS = {
    "DistMult": wb.nn.DistMult(DIM, num_relations=RELATIONS, inverse=True),
    "ComplEx": wb.nn.ComplEx(DIM, num_relations=RELATIONS),
    "TransE": wb.nn.TransE(DIM, num_relations=RELATIONS),
    "TransE-1": wb.nn.TransE(DIM, num_relations=RELATIONS, p=1),
    "dot": wb.nn.DotProduct(DIM),
}


def coarse(*shape, seed=0, values=3, scale=1.0):
    """Rows of few values, so that many scores tie."""
    return scale * torch.randint(-values, values + 1, shape, generator=torch.Generator().manual_seed(seed)).float()


@pytest.fixture(scope="module", autouse=True)
def _coarse_relations():
    with torch.no_grad():
        for decoder in DECODERS.values():
            decoder.requires_grad_(False)
            if decoder.num_relations:
                decoder.relations.copy_(coarse(*decoder.relations.shape, seed=5))


def brute_force(decoder, rows, triples, *, known=None, candidates=None, ends=ENDS):
    """Every candidate's triple scored alone, in the order of the definition."""
    facts = set() if known is None else {tuple(t) for t in torch.cat((known.train, known.valid, known.test)).tolist()}
    ranks = torch.empty(len(ends), len(triples), dtype=torch.float64)

    def score(h, r, t, end):
        return float(decoder(rows[h][None], torch.tensor([r]), rows[t][None], end=end))

    for number, end in enumerate(ends):
        for i, (h, r, t) in enumerate(triples.tolist()):
            ids = range(len(rows)) if candidates is None else candidates[end].expand(len(triples), -1)[i].tolist()
            others = [(n, r, t) if end == "src" else (h, r, n) for n in ids if n != (h if end == "src" else t)]
            scores = [score(*other, end) for other in others if other not in facts]
            own = score(h, r, t, end)
            ranks[number, i] = 1 + sum(s > own for s in scores) + sum(s == own for s in scores) / 2
    return ranks


def knowledge(train, test=()):
    parts = (torch.tensor(list(part), dtype=torch.int64).reshape(-1, 3) for part in (train, (), test))
    return KnowledgeGraph.build(*parts, num_entities=ENTITIES, num_relations=RELATIONS)


def in_parts(rows, size):
    return wb.training.RowParts(len(rows), lambda: [(i, rows[i : i + size]) for i in range(0, len(rows), size)][::-1])


@pytest.mark.parametrize("name", DECODERS)
@examples(5)
@given(st.lists(TRIPLE, max_size=6), st.lists(TRIPLE, min_size=1, max_size=4), st.integers(0, 99), st.integers(1, 8))
def test_ranks_equal_brute_force_on_ties_in_any_parts(name, train, test, seed, size):
    decoder, rows, triples = DECODERS[name], coarse(ENTITIES, DIM, seed=seed, values=1), torch.tensor(test)
    for known in (None, knowledge(train, test)):
        wanted = brute_force(decoder, rows, triples, known=known)
        assert torch.equal(wb.training.rank_triples(decoder, rows, triples, known=known), wanted)
        assert torch.equal(wb.training.rank_triples(decoder, in_parts(rows, size), triples, known=known), wanted)


@given(st.lists(TRIPLE, min_size=1, max_size=4), st.integers(0, 99))
@examples(6)
def test_sampled_ranks_equal_brute_force(test, seed):
    decoder, rows, triples = DECODERS["DistMult"], coarse(ENTITIES, DIM, seed=seed, values=1), torch.tensor(test)
    generator = torch.Generator().manual_seed(seed)
    shared = {end: torch.randint(ENTITIES, (5,), generator=generator) for end in ENDS}
    own = {end: torch.randint(ENTITIES, (len(test), 3), generator=generator) for end in ENDS}
    known = knowledge(test)
    for candidates in (shared, own):
        for filtered in (None, known):
            wanted = brute_force(decoder, rows, triples, known=filtered, candidates=candidates)
            options = {"known": filtered, "negatives": candidates}
            assert torch.equal(wb.training.rank_triples(decoder, rows, triples, **options), wanted)
            assert torch.equal(wb.training.rank_triples(decoder, in_parts(rows, 2), triples, **options), wanted)


@pytest.fixture(scope="module")
def trained_alike():
    """Rows on no grid, with copies of each other far apart, and a decoder: products round them differently."""
    rows = torch.randn(NODES, 50, generator=torch.Generator().manual_seed(1)) * torch.logspace(-2, 1, NODES)[:, None]
    rows[NODES // 2 :] = rows[: NODES // 2]
    heads, tails = torch.randint(NODES, (2, 100), generator=torch.Generator().manual_seed(2))
    return rows, torch.stack((heads, torch.zeros(100, dtype=torch.int64), tails), 1)


@pytest.mark.parametrize("kind", [wb.nn.DistMult, wb.nn.TransE])
def test_ranks_depend_neither_on_chunks_nor_on_parts_and_copies_tie(trained_alike, kind):
    rows, triples = trained_alike
    decoder = kind(50, num_relations=1, std=1.0)
    whole = wb.training.rank_triples(decoder, rows, triples)
    assert torch.equal(wb.training.rank_triples(decoder, rows, triples, chunk_bytes=1 << 16), whole)
    assert torch.equal(wb.training.rank_triples(decoder, in_parts(rows, 170), triples), whole)
    moved = (triples + torch.tensor([NODES // 2, 0, NODES // 2])) % NODES
    assert torch.equal(wb.training.rank_triples(decoder, rows, moved), whole)  # the same rows, elsewhere
    assert ((whole % 1) == 0.5).all()  # every node has one copy, which ties


def test_float64_ranks_are_those_of_all_scores(trained_alike):
    rows, triples = trained_alike
    decoder = wb.nn.ComplEx(50, num_relations=1, std=1.0).double()
    rows = rows.double() + torch.arange(NODES)[:, None] * 1e-3
    scores = decoder.against(rows[triples[:, 0]], triples[:, 1], rows)
    own = scores.gather(1, triples[:, 2:])
    ranks = 1 + (scores > own).sum(1)
    assert torch.equal(wb.training.rank_triples(decoder, rows, triples, ends=["dst"])[0], ranks.double())


@pytest.mark.slow
def test_chunks_limit_the_memory(trained_alike):
    rows, triples = trained_alike
    decoder = wb.nn.DistMult(50, num_relations=1, std=1.0)
    limit = 1 << 19
    for negatives in (None, torch.arange(500).repeat(100, 1)):
        options = {"negatives": negatives, "chunk_bytes": limit}
        wb.training.rank_triples(decoder, rows, triples, **options)
        assert (
            wb.measure_peak(lambda options=options: wb.training.rank_triples(decoder, rows, triples, **options))
            <= limit
        )


def test_untrained_rows_all_tie():
    rows, triples = torch.zeros(101, DIM), torch.tensor([[3, 0, 5]])
    assert wb.training.rank_triples(DECODERS["DistMult"], rows, triples).tolist() == [[51.0], [51.0]]


def test_metrics_equal_the_open_graph_benchmark():
    evaluators = pytest.importorskip("ogb.linkproppred")
    positive, negative = coarse(40, seed=1, values=9), coarse(40, 30, seed=2, values=9)
    theirs = evaluators.Evaluator("ogbl-wikikg2").eval({"y_pred_pos": positive, "y_pred_neg": negative})
    ours = wb.training.LinkMetrics.of(wb.training.score_ranks(positive, negative))
    for name, key in (("mrr", "mrr"), *((f"hits_at_{k}", f"hits@{k}") for k in (1, 3, 10))):
        assert getattr(ours, name) == pytest.approx(float(theirs[f"{key}_list"].double().mean()), abs=1e-7), name
    pool = negative.flatten()[:50]
    ddi = evaluators.Evaluator("ogbl-ddi").eval({"y_pred_pos": positive, "y_pred_neg": pool})
    assert wb.training.hits_above(positive, pool, 20) == pytest.approx(ddi["hits@20"])
    assert 0 < ddi["hits@20"] < 1
    assert wb.training.hits_above(positive, pool[:19], 20) == 1.0
    with pytest.raises(ValueError, match=r"positive has shape \(40,\) and negative \(40, 30\); pass \[n\] and \[m\]"):
        wb.training.hits_above(positive, negative, 20)


def test_sampled_ranks_equal_the_evaluator_on_the_same_scores():
    evaluators = pytest.importorskip("ogb.linkproppred")
    decoder, rows = DECODERS["DistMult"], coarse(ENTITIES, DIM, seed=3)
    triples = torch.tensor([[0, 0, 1], [2, 1, 3], [4, 2, 5]])
    others = torch.tensor([[2, 3, 4], [0, 1, 4], [0, 1, 2]])
    head, relation, tail = triples.unbind(1)
    negative = decoder.against(rows[head][:, None], relation[:, None], rows[others])[:, 0]
    own = {"y_pred_pos": decoder(rows[head], relation, rows[tail]), "y_pred_neg": negative}
    own = {name: scores.detach() for name, scores in own.items()}
    theirs = evaluators.Evaluator("ogbl-wikikg2").eval(own)["mrr_list"]
    ranks = wb.training.rank_triples(decoder, rows, triples, negatives=others, ends=["dst"])[0]
    assert torch.allclose(1 / ranks.float(), theirs)


def test_encoder_ranks_its_outputs():
    kg = knowledge([(0, 0, 1), (1, 1, 2), (2, 2, 3), (5, 0, 4)], [(0, 1, 2), (3, 0, 6)])
    rows, graph = wb.LearnedRows(coarse(ENTITIES, DIM, seed=4)), kg.graph(inverse=True)
    encoder = wb.build_model("sage-mean", in_dim=DIM, hidden_dim=DIM, out_dim=DIM, num_layers=1)
    h = wb.full_neighbour_logits(encoder, graph, rows)
    found = wb.training.evaluate_links(encoder, DECODERS["DistMult"], rows, kg.test, graph=graph, known=kg)
    assert found == wb.training.LinkMetrics.of(brute_force(DECODERS["DistMult"], h, kg.test, known=kg))
    assert found.num_ranked == 4
    with pytest.raises(ValueError, match="pass that of the training triples"):
        wb.training.evaluate_links(encoder, DECODERS["DistMult"], rows, kg.test)


def test_drawn_candidates_are_shared_and_depend_on_the_seed():
    decoder, rows, triples = DECODERS["DistMult"], coarse(ENTITIES, DIM, seed=4), torch.tensor([[0, 0, 1], [5, 1, 2]])
    drawn = {end: wb.links.sample_negatives(ENTITIES, (1, 9), end=end, seed=3)[0] for end in ENDS}
    by_number = wb.training.rank_triples(decoder, rows, triples, negatives=9, seed=3)
    assert torch.equal(by_number, wb.training.rank_triples(decoder, rows, triples, negatives=drawn))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"triples": torch.tensor([[0, 0, 7]])}, IndexError, "triples"),
        ({"triples": torch.tensor([[0, 3, 1]])}, IndexError, "relations"),
        ({"triples": torch.tensor([[0, 1]])}, ValueError, "head, relation, tail"),
        ({"rows": torch.full((ENTITIES, DIM), torch.nan)}, ValueError, "NaN"),
        ({"ends": ["tail"]}, ValueError, "end"),
        ({"negatives": torch.tensor([[7]])}, IndexError, "negatives"),
        ({"negatives": torch.zeros(2, 4, dtype=torch.int64)}, ValueError, r"\[k\] or \[1, k\]"),
        ({"chunk_bytes": 1}, ValueError, "chunk_bytes"),
        ({"rows": torch.zeros(9, DIM), "known": knowledge([(0, 0, 1)])}, ValueError, "7 entities"),
        (
            {"rows": wb.training.RowParts(ENTITIES, lambda: [(0, torch.zeros(3, DIM))])},
            ValueError,
            "visit every node once",
        ),
    ],
)
def test_wrong_arguments(change, error, words):
    given = {"decoder": DECODERS["DistMult"], "rows": torch.ones(ENTITIES, DIM), "triples": torch.tensor([[0, 0, 1]])}
    with pytest.raises(error, match=words):
        wb.training.rank_triples(**given | change)


def test_no_triples():
    assert wb.training.rank_triples(
        DECODERS["dot"], torch.ones(3, DIM), torch.empty(0, 2, dtype=torch.int64)
    ).shape == (2, 0)
    with pytest.raises(ValueError, match="at least one triple"):
        wb.training.LinkMetrics.of(torch.empty(0))


@pytest.mark.parametrize("firsts", [(0, 1, 2), (0, 4, 9), (0, 8, 4, 6), (-4, 0, 4, 8)], ids=str)
def test_parts_that_do_not_tile_the_ids_are_refused_before_they_are_yielded(firsts):
    """Parts numbered instead of placed, past the end, across another one, and below 0."""
    rows = coarse(4, DIM)
    parts = wb.training.RowParts(12, lambda: [(first, rows) for first in firsts])
    yielded = []
    with pytest.raises(ValueError, match=r"a part has ids \[.*pass the first id of each part"):
        yielded.extend(first for first, _ in parts.ranges(4))
    assert yielded == list(firsts[: firsts.index(next(f for f in firsts if f not in (0, 4, 8)))])
    with pytest.raises(ValueError, match="a part has ids"):
        parts.read(torch.arange(12))


def test_gaps_between_parts_are_refused_at_the_end_of_the_pass():
    rows = coarse(4, DIM)
    for firsts in ((0, 8), (4, 8)):
        parts = wb.training.RowParts(12, lambda firsts=firsts: [(first, rows) for first in firsts])
        with pytest.raises(ValueError, match="the parts have 8 rows, but num_rows is 12"):
            parts.read(torch.tensor([5]))


def test_parts_come_again_and_may_be_empty():
    """First ids that are tensors are hashed by identity; a store's last partitions may have no rows."""
    rows, ids = coarse(12, DIM, values=99), torch.tensor([11, 0, 5, 5, 8])
    firsts: Any = torch.tensor([8, 0, 8, 4, 0, 12, 16])
    parts = wb.training.RowParts(12, lambda: [(first, rows[first : first + 4]) for first in firsts])
    assert torch.equal(parts.read(ids), rows[ids])
    assert sorted(int(first) for first, _ in parts.ranges(2)) == list(range(0, 12, 2))


def test_ids_that_no_part_has_are_refused():
    with pytest.raises(IndexError, match=r"ids contains 12; ids must be in \[0, 12\)"):
        in_parts(coarse(12, DIM), 4).read(torch.tensor([3, 12]))
