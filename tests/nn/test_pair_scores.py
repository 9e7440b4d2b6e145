"""Scores of chunks at once equal those of negative pairs one by one, whatever the sizes and the order of the chunks."""

import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench.nn.decoders import pair_rows

NODES, DIM = 30, 4


def batch_of(pairs: int, chunks: int, ends: str, *, seed: int = 0) -> wb.links.EdgeBatch:
    generator = torch.Generator().manual_seed(seed)
    src, dst = torch.randint(NODES, (2, pairs), generator=generator)
    negatives = wb.links.Negatives(5, chunks=chunks, ends=ends, seed=seed)
    return negatives.draw(NODES, src, dst, relation=torch.randint(3, (pairs,), generator=generator))


def in_order(scores: list[wb.nn.PairScores]) -> tuple[Tensor, Tensor]:
    return torch.stack([s.positive for s in scores]), torch.cat([s.negative for s in scores], 1)


@pytest.mark.parametrize("ends", ["src", "dst", "both"])
@pytest.mark.parametrize(("pairs", "chunks"), [(12, 3), (11, 3), (2, 2), (5, 1)])
def test_equal_negatives_per_pair(pairs: int, chunks: int, ends: str) -> None:
    torch.manual_seed(0)
    decoder = wb.nn.ComplEx(DIM, num_relations=3, std=1).double()
    whole = batch_of(pairs, chunks, ends)
    part = whole.select(torch.randperm(pairs)[: max(1, pairs - 2)])  # chunks of unequal sizes, out of order
    for batch in (whole, part):
        h = torch.randn(len(batch.seeds), DIM, dtype=torch.float64)
        shared, one_by_one = (in_order(wb.nn.pair_scores(decoder, h, form)) for form in (batch, batch.per_pair()))
        for found, expected in zip(shared, one_by_one, strict=True):
            torch.testing.assert_close(found, expected.expand_as(found), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ends", ["dst", "both"])
def test_gradients_of_unequal_chunks(ends: str) -> None:
    decoder = wb.nn.DistMult(DIM, num_relations=3, inverse=True, std=1).double()
    batch = batch_of(7, 3, ends)
    h = torch.randn(len(batch.seeds), DIM, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h: in_order(wb.nn.pair_scores(decoder, h, batch)), [h])


def test_pairs_without_negatives() -> None:
    batch = wb.links.EdgeBatch.from_pairs(torch.tensor([0, 1]), torch.tensor([2, 2]))
    h = torch.eye(3)
    (scores,) = wb.nn.pair_scores(wb.nn.DotProduct(3), h, batch)
    assert scores.positive.tolist() == [0, 0] and scores.negative.shape == (2, 0)


def test_rows_of_other_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="h has 2 rows, but the pairs have 3 seeds"):
        wb.nn.pair_scores(
            wb.nn.DotProduct(3),
            torch.eye(2, 3),
            wb.links.EdgeBatch.from_pairs(torch.tensor([0, 1]), torch.tensor([2, 2])),
        )
    with pytest.raises(TypeError, match="decoder is"):
        wb.nn.pair_scores(torch.nn.Identity(), torch.eye(3), batch_of(3, 1, "dst"))  # pyright: ignore[reportArgumentType]


def test_rows_equal_indexing() -> None:
    h = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    first, second = torch.tensor([0, 5, 0, 0]), torch.tensor([[1, 5], [5, 2]])
    weight = torch.randn(4, 3, dtype=torch.float64), torch.randn(2, 2, 3, dtype=torch.float64)
    gradients = []
    for rows in (pair_rows(h, first, second), (h[first], h[second])):
        sum((r * w).sum() for r, w in zip(rows, weight, strict=True)).backward()  # pyright: ignore
        gradients.append(h.grad)
        h.grad = None
    torch.testing.assert_close(*gradients, rtol=1e-14, atol=1e-14)
    with pytest.raises(IndexError, match="ids contains 6"):
        pair_rows(h, torch.tensor([6]))
