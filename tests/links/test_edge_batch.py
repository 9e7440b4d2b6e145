from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from tests.strategies import graphs
from workbench.links.edge_batch import EdgeBatch, first_appearances, first_appearances_torch

ONE, TWO = torch.tensor([0]), torch.tensor([0, 1])
Pair = tuple[int, int]


def raw_pairs(batch: EdgeBatch) -> tuple[list[Pair], list[Pair]]:
    """Pairs and negative pairs by raw ids."""
    seeds = batch.seeds.tolist()
    ends = [[] if end is None else end.tolist() for end in (batch.neg_src, batch.neg_dst)]
    positive = [(seeds[s], seeds[d]) for s, d in zip(batch.src.tolist(), batch.dst.tolist(), strict=True)]
    return positive, [(seeds[s], seeds[d]) for s, d in zip(*ends, strict=True)]


@st.composite
def batches(draw) -> EdgeBatch:
    pairs, per_pair = draw(st.integers(0, 8)), draw(st.integers(0, 3))

    def ids(count):
        return torch.tensor(draw(st.lists(st.integers(0, 11), min_size=count, max_size=count)), dtype=torch.int64)

    src, dst = ids(pairs), ids(pairs)
    negatives: dict[str, Any] = {
        n: ids(pairs * per_pair) for n in draw(st.sets(st.sampled_from(("negative_src", "negative_dst"))))
    }
    return EdgeBatch.from_pairs(src, dst, **negatives, relation=draw(st.sampled_from((None, torch.arange(pairs)))))


@st.composite
def chunked(draw: st.DrawFn) -> EdgeBatch:
    """Batches whose pairs share negatives of one end or of both."""
    pairs = draw(st.integers(1, 8))
    chunks = draw(st.integers(1, pairs))

    def ids(*shape: int) -> torch.Tensor:
        count = torch.Size(shape).numel()
        return torch.tensor(draw(st.lists(st.integers(0, 11), min_size=count, max_size=count))).long().reshape(shape)

    ends = draw(st.sets(st.sampled_from(("negative_src", "negative_dst")), min_size=1))
    negatives: dict[str, Any] = {name: ids(chunks, draw(st.integers(1, 3))) for name in sorted(ends)}
    relation = draw(st.sampled_from((None, torch.arange(pairs))))
    return EdgeBatch.from_pairs(ids(pairs), ids(pairs), **negatives, relation=relation, chunks=chunks).validate()


def shared_pairs(batch: EdgeBatch) -> list[list[Pair]]:
    """The negative pairs of each pair by raw ids, from the definition of shared negatives."""
    seeds, (positive, _) = batch.seeds.tolist(), raw_pairs(batch.per_pair())
    assert batch.chunk is not None
    replaced = [[] if ids is None else ids.tolist() for ids in (batch.neg_src, batch.neg_dst)]
    rows = [[row[c] if row else [] for row in replaced] for c in batch.chunk.tolist()]
    return [
        [(seeds[n], d) for n in sources] + [(s, seeds[n]) for n in destinations]
        for (s, d), (sources, destinations) in zip(positive, rows, strict=True)
    ]


@given(chunked())
def test_negatives_per_pair_are_those_of_its_chunk(batch):
    flat = batch.per_pair().validate()
    count = batch.num_negatives
    assert flat.num_negatives == count and flat.num_chunks == 0 and flat.per_pair() is flat
    assert [raw_pairs(flat)[1][i * count : (i + 1) * count] for i in range(batch.num_pairs)] == shared_pairs(batch)


@given(st.integers(1, 20), st.data())
def test_chunks_are_contiguous_and_balanced(pairs, data):
    chunks = data.draw(st.integers(1, pairs))
    ids = torch.arange(pairs)
    batch = EdgeBatch.from_pairs(ids, ids, negative_dst=torch.zeros(chunks, 1).long(), chunks=chunks)
    for part in (batch, *batch.split(ids % 3)):
        assert part.chunk is not None
        sizes = [part.chunk.tolist().count(chunk) for chunk in range(part.num_chunks)]
        assert part.chunk.tolist() == sorted(part.chunk.tolist()) and part.chunk_sizes() == sizes and min(sizes) >= 1
        assert part is not batch or (len(sizes) == chunks and max(sizes) - min(sizes) <= 1)


@given(chunked(), st.data())
def test_select_keeps_the_negatives_of_the_chunks(batch, data):
    kept = data.draw(st.lists(st.integers(0, batch.num_pairs - 1), max_size=6))
    chosen = batch.select(torch.tensor(kept, dtype=torch.int64)).validate()
    assert chosen.chunk is not None and batch.chunk is not None
    assert chosen.num_chunks == len(set(batch.chunk[kept].tolist()))
    if kept:
        assert shared_pairs(chosen) == [shared_pairs(batch)[i] for i in kept]
    assert chosen.parent is not None and chosen.parent_pairs is not None
    assert torch.equal(batch.seeds[chosen.parent], chosen.seeds) and chosen.parent_pairs.tolist() == kept


@given(st.lists(st.integers(0, 9)))
def test_first_appearances(ids):
    distinct, position = first_appearances(torch.tensor(ids, dtype=torch.int64))
    assert distinct.tolist() == list(dict.fromkeys(ids))
    assert distinct[position].tolist() == ids


def test_missing_end_of_a_negative_defaults_to_the_pairs():
    src, dst = torch.tensor([[3, 1], [2, 3]], dtype=torch.int32)
    other = torch.tensor([[8, 9], [7, 3]])
    tails = EdgeBatch.from_pairs(src, dst, negative_dst=other).validate()
    assert tails.seeds.tolist() == [3, 1, 2, 8, 9, 7]
    assert raw_pairs(tails)[1] == [(3, 8), (3, 9), (1, 7), (1, 3)]
    heads = EdgeBatch.from_pairs(src, dst, negative_src=other.flatten()).validate()
    assert raw_pairs(heads)[1] == [(8, 2), (9, 2), (7, 3), (3, 3)]
    both = EdgeBatch.from_pairs(src, dst, negative_src=other, negative_dst=other.flip(1)).validate()
    assert raw_pairs(both)[1] == [(8, 9), (9, 8), (7, 3), (3, 7)]
    assert [b.num_negatives for b in (tails, heads, both)] == [2, 2, 2]


@given(batches(), st.data())
def test_select_keeps_pairs_with_their_negatives(batch, data):
    kept = data.draw(st.lists(st.integers(0, batch.num_pairs - 1), max_size=6)) if batch.num_pairs else []
    chosen = batch.select(torch.tensor(kept, dtype=torch.int64)).validate()
    positive, negative = raw_pairs(batch)
    k = batch.num_negatives
    assert raw_pairs(chosen) == ([positive[i] for i in kept], [n for i in kept for n in negative[i * k : (i + 1) * k]])
    ends = [end for end in (chosen.src, chosen.dst, chosen.neg_src, chosen.neg_dst) if end is not None]
    assert list(dict.fromkeys(torch.cat(ends).tolist())) == list(range(len(chosen.seeds)))  # by first appearance
    assert (chosen.relation is None) == (batch.relation is None)
    assert chosen.relation is None or chosen.relation.tolist() == kept
    assert chosen.parent is not None and chosen.parent_pairs is not None
    assert torch.equal(batch.seeds[chosen.parent], chosen.seeds) and chosen.parent_pairs.tolist() == kept


@given(batches(), st.data())
def test_split_is_a_partition_of_the_pairs(batch, data):
    part = data.draw(st.lists(st.sampled_from((0, 1, 5)), min_size=batch.num_pairs, max_size=batch.num_pairs))
    parts = batch.split(torch.tensor(part, dtype=torch.int64))
    order = sorted(range(batch.num_pairs), key=part.__getitem__)
    assert len(parts) == len(set(part))
    assert [pair for p in parts for pair in raw_pairs(p)[0]] == [raw_pairs(batch)[0][i] for i in order]
    assert sum(len(raw_pairs(p)[1]) for p in parts) == len(raw_pairs(batch)[1])


@given(graphs(), st.data(), st.booleans())
def test_target_edges(graph, data, reverse):
    node = st.integers(0, graph.num_nodes - 1)
    pairs = data.draw(st.lists(st.tuples(node, node), min_size=1, max_size=6))
    src, dst = (torch.tensor(ids) for ids in zip(*pairs, strict=True))
    wanted = set(pairs) | ({(d, s) for s, d in pairs} if reverse else set())
    rows = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees()).tolist()
    ids = list(range(graph.num_edges)) if graph.edge_ids is None else graph.edge_ids.tolist()
    edges = zip(graph.indices.tolist(), rows, ids, strict=True)
    found = EdgeBatch.from_pairs(src, dst).target_edges(graph, reverse=reverse)
    assert found.tolist() == sorted(e for s, d, e in edges if (s, d) in wanted)


def test_to_nbytes_and_repr():
    batch = EdgeBatch.from_pairs(ONE, ONE + 1, negative_dst=ONE + 2, relation=ONE)
    assert batch.to("meta").device.type == "meta"
    assert batch.nbytes == 8 * (3 + 4 + 1)
    assert repr(batch) == "EdgeBatch(1 pairs, 1 negatives each, relation, 3 seeds; 64 B)"
    assert "<th>seeds</th><td>3</td>" in batch._repr_html_()
    shared = EdgeBatch.from_pairs(TWO, TWO, negative_src=TWO[:, None], negative_dst=TWO[:, None] + 3, chunks=2)
    assert repr(shared).startswith("EdgeBatch(2 pairs, 2 negatives each shared in 2 chunks, 4 seeds;")
    assert shared.to("meta").num_chunks == 2


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: EdgeBatch.from_pairs(TWO, ONE), ValueError, "dst has shape"),
        (lambda: EdgeBatch.from_pairs(ONE.float(), ONE), TypeError, "src must be an int64 or int32 tensor"),
        (lambda: EdgeBatch.from_pairs(ONE, ONE - 1), IndexError, "dst contains -1"),
        (
            lambda: EdgeBatch.from_pairs(TWO, TWO, negative_src=torch.arange(3)),
            ValueError,
            "negative_src has 3 ids, but 2 pairs",
        ),
        (
            lambda: EdgeBatch.from_pairs(TWO, TWO, negative_dst=torch.zeros(4, 2, dtype=torch.int64)),
            ValueError,
            r"negative_dst has shape \(4, 2\); for 2 pairs it must be \[2, 4\], or that flattened",
        ),
        (
            lambda: EdgeBatch.from_pairs(ONE, ONE, negative_src=ONE, negative_dst=TWO),
            ValueError,
            "negative_src has 1 ids",
        ),
        (lambda: EdgeBatch.from_pairs(ONE, ONE, relation=TWO), ValueError, "relation has shape"),
        (lambda: EdgeBatch(TWO, ONE, ONE, neg_src=ONE), ValueError, "pass both neg_src and neg_dst"),
        (lambda: EdgeBatch(TWO, TWO, TWO, torch.arange(3), torch.arange(3)), ValueError, "neg_src has shape"),
        (lambda: EdgeBatch(TWO, ONE, ONE + 2).validate(), IndexError, r"dst contains 2; ids must be in \[0, 2\)"),
        (lambda: EdgeBatch(TWO * 0, ONE, ONE).validate(), ValueError, "seeds contains 0 more than once"),
        (lambda: EdgeBatch.from_pairs(ONE, ONE).select(TWO), IndexError, "pairs contains 1"),
        (lambda: EdgeBatch.from_pairs(TWO, TWO, negative_src=TWO, chunks=3), ValueError, "chunks is 3; .* from 1 to 2"),
        (lambda: EdgeBatch.from_pairs(TWO, TWO, chunks=1), ValueError, "chunks is 1, but there are no negatives"),
        (
            lambda: EdgeBatch.from_pairs(TWO, TWO, negative_src=TWO, chunks=2),
            ValueError,
            r"negative_src has shape \(2,\); for 2 chunks it must be \[2, count\]",
        ),
        (lambda: EdgeBatch(TWO, TWO, TWO, chunk=TWO), ValueError, "chunk is given without negatives"),
        (lambda: EdgeBatch(TWO, TWO, TWO, TWO, chunk=TWO), ValueError, r"must have two dimensions: \[chunks, count\]"),
        (lambda: EdgeBatch(TWO, TWO, TWO, TWO[:, None], TWO[None], chunk=TWO), ValueError, "neg_src has shape"),
        (lambda: EdgeBatch(TWO, TWO, TWO, TWO[None], chunk=TWO).validate(), IndexError, r"chunk contains 1"),
        (lambda: EdgeBatch(TWO, TWO, TWO, TWO[None] + 1, chunk=TWO * 0).validate(), IndexError, "neg_src contains 2"),
        (lambda: EdgeBatch(TWO, TWO, TWO, parent=ONE), ValueError, "parent has shape"),
        (lambda: EdgeBatch(TWO, TWO, TWO, parent=TWO * 0).validate(), ValueError, "parent contains 0 more than once"),
        (lambda: EdgeBatch.from_pairs(ONE, ONE).split(TWO), ValueError, "part has shape"),
    ],
)
def test_rejects(build, error, message):
    with pytest.raises(error, match=message):
        build()


@given(st.lists(st.sampled_from((0, 1, 7, 4_000_000, 2**40)), max_size=12))
def test_first_appearances_equal_those_in_plain_torch(ids: list[int]) -> None:
    tensor = torch.tensor(ids, dtype=torch.int64)
    found, plain = first_appearances(tensor), first_appearances_torch(tensor)
    assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))
    assert found[0].tolist() == list(dict.fromkeys(ids)) and torch.equal(found[0][found[1]], tensor)
