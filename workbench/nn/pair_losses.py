"""Losses of link prediction: positive pairs against their negatives."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from workbench.core.errors import check_choice, check_type, check_vector
from workbench.kernels.segment import compute_dtype
from workbench.links.edge_batch import EdgeBatch
from workbench.nn.decoders import ENDS, Decoder, pair_rows

_REDUCTIONS = ("none", "sum", "mean")


def softmax_pair_loss(
    positive: Tensor, negative: Tensor, *, mask: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Cross entropy of each positive pair among itself and its negatives: `−f + log(exp f + Σ_j exp f_j)`.

    Args:
        positive: floating [n], scores of the pairs; losses of half precision are computed in float32.
        negative: floating [n, k], scores of their negatives.
        mask: bool [n, k], negatives to leave out (`workbench.links.false_negatives`); None: none.
        reduction: "mean" or "sum" over the pairs, or "none": [n].

    Raises:
        TypeError: scores or a mask of another type.
        ValueError: shapes that do not match, or an unknown reduction.

    Source: the softmax loss of MariusGNN (EuroSys 2023) and PyTorch-BigGraph (Lerer et al., MLSys 2019).
    """
    _check(positive, negative, mask)
    return _reduced(_CrossEntropy.apply(*_wide(positive, negative), mask), reduction)


def logistic_pair_loss(
    positive: Tensor, negative: Tensor, *, mask: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Logistic loss of each positive pair and all its negatives: `log(1 + exp(−f)) + Σ_j log(1 + exp f_j)`.

    Args:
        positive: floating [n], scores of the pairs; losses of half precision are computed in float32.
        negative: floating [n, k], scores of their negatives.
        mask: bool [n, k], negatives to leave out (`workbench.links.false_negatives`); None: none.
        reduction: "mean" or "sum" over the pairs, or "none": [n].

    Raises:
        TypeError: scores or a mask of another type.
        ValueError: shapes that do not match, or an unknown reduction.

    Source: Trouillon et al., "Complex embeddings for simple link prediction" (ICML 2016), section 4.1.
    """
    _check(positive, negative, mask)
    positive, negative = _wide(positive, negative)
    losses = softplus(negative)
    if mask is not None:
        losses = losses.masked_fill(mask, 0)
    return _reduced(softplus(-positive) + losses.sum(1), reduction)


class _CrossEntropy(torch.autograd.Function):
    """Losses [n] of the softmax; keeps its exponentials, so that the backward pass computes none."""

    @staticmethod
    def forward(ctx: Any, positive: Tensor, negative: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:
            negative = negative.masked_fill(mask, -torch.inf)
        highest = positive if not negative.shape[1] else torch.maximum(positive, negative.amax(1))
        exponentials = torch.sub(negative, highest[:, None]).exp_()
        own = (positive - highest).exp_()
        total = exponentials.sum(1).add_(own)
        ctx.save_for_backward(exponentials, own, total)
        return total.log() + (highest - positive)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        exponentials, own, total = ctx.saved_tensors
        scale = grad / total
        return own * scale - grad, exponentials * scale[:, None], None


def _wide(*scores: Tensor) -> list[Tensor]:
    """Scores in the dtype of losses: a sum over 65,504 negatives or more is infinite in float16."""
    return [s.to(compute_dtype(s)) for s in scores]


def _check(positive: Tensor, negative: Tensor, mask: Tensor | None) -> None:
    for name, scores in (("positive", positive), ("negative", negative)):
        check_type(name, scores, Tensor, "pass scores of a decoder")
    if negative.dim() != 2:
        raise ValueError(f"negative has shape {tuple(negative.shape)}; pass [{len(positive)}, negatives per pair]")
    check_vector("positive", positive, len(negative), (positive.dtype,))
    if mask is not None and (mask.dtype != torch.bool or mask.shape != negative.shape):
        raise ValueError(f"mask is {mask.dtype} {tuple(mask.shape)}; it must be bool {tuple(negative.shape)}")


def _reduced(losses: Tensor, reduction: str) -> Tensor:
    check_choice("reduction", reduction, _REDUCTIONS)
    if reduction == "none":
        return losses
    total = losses.sum()
    return total / len(losses) if reduction == "mean" else total


class PairScores(NamedTuple):
    """Scores of pairs and of the negatives that replace one of their ends.

    Args:
        end: the end that is predicted, "src" or "dst".
        positive: floating [num_pairs].
        negative: floating [num_pairs, negatives of this end].
    """

    end: str
    positive: Tensor
    negative: Tensor


def pair_scores(decoder: Decoder, h: Tensor, pairs: EdgeBatch) -> list[PairScores]:
    """Score positive pairs and their negatives.

    Negatives shared by a chunk are scored by one batched matrix product per end. Negatives per pair are scored one by
    one, as destinations are.

    Args:
        decoder: scores triples.
        h: floating [num_seeds, dim], rows of the pairs' seeds, in their order.
        pairs: positions in the seeds.

    Returns:
        One entry per end that negatives replace, "src" first, so that their negatives side by side have the columns of
        `workbench.links.false_negatives`; a single one of "dst" for negatives per pair or without negatives.

    Raises:
        TypeError: an argument of another type, or pairs without relations if the decoder has some.
        ValueError: rows of another width or number.
        IndexError: a relation that the decoder does not have.
    """
    check_type("decoder", decoder, Decoder, "pass a decoder such as wb.nn.DistMult(dim, num_relations=…)")
    check_type("pairs", pairs, EdgeBatch, "pass an EdgeBatch (edge_batches yields them)")
    if len(h) != len(pairs.seeds):
        raise ValueError(f"h has {len(h)} rows, but the pairs have {len(pairs.seeds)} seeds; pass a row per seed")
    if h.is_cuda:
        pairs.check_positions()
    return [_per_pair(decoder, h, pairs)] if pairs.chunk is None else _shared(decoder, h, pairs)


def _shared(decoder: Decoder, h: Tensor, pairs: EdgeBatch) -> list[PairScores]:
    at, slots = pairs.chunk_layout
    negatives = shared_negatives(pairs)
    src, dst, *candidates = pair_rows(h, pairs.src[at], pairs.dst[at], *negatives.values())
    relation, scores = None if pairs.relation is None else pairs.relation[at], []
    for end, rows in zip(negatives, candidates, strict=True):
        kept, other = (src, dst) if end == "dst" else (dst, src)
        positive, negative = decoder.scores(kept, relation, other, rows, end=end)
        scores.append(PairScores(end, *_unpacked(slots, positive.flatten(), negative.flatten(0, 1))))
    return scores


def shared_negatives(pairs: EdgeBatch) -> dict[str, Tensor]:
    """Return the negatives of each end that they replace, [chunks, count], "src" first."""
    return {end: ids for end, ids in zip(ENDS, (pairs.neg_src, pairs.neg_dst), strict=True) if ids is not None}


def _unpacked(slots: Tensor | None, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """Bring scores of [chunks × size] pairs into the order of the pairs."""
    if slots is None:
        return positive, negative
    return pair_rows(positive[:, None], slots)[0][:, 0], pair_rows(negative, slots)[0]


def _per_pair(decoder: Decoder, h: Tensor, pairs: EdgeBatch) -> PairScores:
    if pairs.neg_src is None or pairs.neg_dst is None:
        src, dst = pair_rows(h, pairs.src, pairs.dst)
        positive = decoder(src, pairs.relation, dst)
        return PairScores("dst", positive, positive.new_empty(len(positive), 0))
    src, dst, neg_src, neg_dst = pair_rows(h, pairs.src, pairs.dst, pairs.neg_src, pairs.neg_dst)
    relation = None if pairs.relation is None else pairs.relation.repeat_interleave(pairs.num_negatives)
    negative = decoder(neg_src, relation, neg_dst).view(pairs.num_pairs, pairs.num_negatives)
    return PairScores("dst", decoder(src, pairs.relation, dst), negative)


_BLOCK_BYTES = 1 << 20  # of scores, which then stay in the cache for all that is done with them


def softmax_of_pairs(decoder: Decoder, h: Tensor, pairs: EdgeBatch, *, factor: float = 1.0) -> Tensor:
    """Sum `workbench.nn.softmax_pair_loss` over all pairs and ends, without all scores of negatives in memory.

    The decoder's scores are inner products of queries and rows [num_seeds, dim]; negatives are shared in chunks,
    equally many for both ends.
    """
    if h.is_cuda:
        pairs.check_positions()
    at, slots = pairs.chunk_layout
    negatives = shared_negatives(pairs)
    src, dst, candidates = pair_rows(h, pairs.src[at], pairs.dst[at], torch.cat(list(negatives.values())))
    relation = None if pairs.relation is None else pairs.relation[at]
    queries = [decoder.query_of(src if end == "dst" else dst, relation, end=end) for end in negatives]
    others = [dst if end == "dst" else src for end in negatives]
    weight = None if slots is None else _ones_at(slots, src).repeat(len(negatives), 1)
    return softmax_products(torch.cat(queries), torch.cat(others), candidates, weight=weight, factor=factor)


def can_fuse(decoder: Decoder, pairs: EdgeBatch) -> bool:
    """Return whether `softmax_of_pairs` can compute the loss: chunks, and inner products of queries with rows."""
    if pairs.chunk is None:
        return False
    kind, counts = type(decoder), {ids.shape[1] for ids in shared_negatives(pairs).values()}
    names = ("forward", "against", "scores", "compare", "compare_all")
    return len(counts) == 1 and all(getattr(kind, name) is getattr(Decoder, name) for name in names)


def softmax_products(
    query: Tensor, other: Tensor, candidates: Tensor, *, weight: Tensor | None = None, factor: float = 1.0
) -> Tensor:
    """Sum the cross entropies of each pair's score among itself and its candidates': `softmax_pair_loss` of products.

    The scores of candidates are never all in memory: the gradients of a block of them are computed with it, for a
    gradient of 1 of the result; the backward pass multiplies them by the actual one. Half precision is computed in
    float32: the gradient of one candidate's score, factor · probability, is often below the least number of float16.

    Args:
        query: floating [chunks, n, dim].
        other: [chunks, n, dim]; the score of a pair is its inner product with the pair's query.
        candidates: [chunks, k, dim]; their scores are the inner products with the queries of their chunk.
        weight: [chunks, n], factor of each pair's loss; None: 1.

    Returns:
        A scalar.
    """
    dtype = compute_dtype(query)
    query, other, candidates = (rows.to(dtype) for rows in (query, other, candidates))
    weight = None if weight is None else weight.to(dtype)
    with torch.autocast(query.device.type, enabled=False):
        return _SoftmaxProducts.apply(query, other, candidates, weight, factor)


class _SoftmaxProducts(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, other: Tensor, candidates: Tensor, weight: Tensor | None, factor: float
    ) -> Tensor:
        positive = (query * other).sum(-1)
        weight = torch.full_like(positive, factor) if weight is None else weight * factor
        losses, own = torch.empty_like(positive), torch.empty_like(positive)
        d_query, d_candidates = torch.empty_like(query), torch.empty_like(candidates)
        for chunks, rows in _blocks(query, candidates):
            block = chunks, rows
            queries, against = query[block], candidates[chunks]
            scores = queries @ against.transpose(1, 2)
            exponentials, total = _exponentials(scores, positive[block], losses[block], own[block])
            scale = weight[block] / total
            own[block] *= scale
            d_query[block] = (exponentials @ against).mul_(scale.unsqueeze(2))
            added = 1 if rows.start else 0
            d_candidates[chunks].baddbmm_(exponentials.transpose(1, 2), queries * scale.unsqueeze(2), beta=added)
        own -= weight
        ctx.save_for_backward(d_query.addcmul_(own.unsqueeze(2), other), query * own.unsqueeze(2), d_candidates)
        return (losses * weight).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        gradients = ctx.saved_tensors
        if grad.device.type != "cpu" or grad != 1:
            gradients = [gradient * grad for gradient in gradients]
        return *gradients, None, None


def _exponentials(scores: Tensor, positive: Tensor, losses: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Write each pair's loss and its own exponential; return those of its candidates, in place, and the sum of all."""
    highest = torch.maximum(positive, scores.amax(2)) if scores.shape[2] else positive
    exponentials = scores.sub_(highest.unsqueeze(2)).exp_()
    torch.exp(positive - highest, out=own)
    total = exponentials.sum(2).add_(own)
    torch.sub(total.log().add_(highest), positive, out=losses)
    return exponentials, total


def _ones_at(slots: Tensor, rows: Tensor) -> Tensor:
    """Return [chunks, size]: 1 where there is a pair, 0 where a chunk is filled up."""
    weight = rows.new_zeros(rows.shape[0] * rows.shape[1])
    return weight.index_fill_(0, slots, 1).view(rows.shape[:2])


def _blocks(query: Tensor, candidates: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield chunks and pairs whose scores have at most `_BLOCK_BYTES`: all pairs of several chunks, or some."""
    chunks, pairs = query.shape[:2]
    row_bytes = max(1, candidates.shape[1] * query.element_size())
    some = max(1, min(pairs, _BLOCK_BYTES // row_bytes))
    group = max(1, _BLOCK_BYTES // (row_bytes * max(1, pairs)))
    for first in range(0, chunks, group):
        for row in range(0, pairs, some):
            yield slice(first, first + group), slice(row, row + some)
