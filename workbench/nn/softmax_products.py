"""The softmax loss of scores that are inner products, with its gradients, a block of scores at a time."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workbench.links.edge_batch import EdgeBatch
from workbench.nn.decoders import Decoder
from workbench.nn.pair_scores import chunked_rows

_BLOCK_BYTES = 1 << 22  # of scores, which then stay in the cache for all that is done with them


def softmax_of_pairs(decoder: Decoder, h: Tensor, pairs: EdgeBatch) -> Tensor:
    """Sum `workbench.softmax_pair_loss` over all pairs and ends, without all scores of negatives in memory.

    Args:
        decoder: scores are inner products of queries and rows.
        h: floating [num_seeds, dim], rows of the pairs' seeds.
        pairs: with negatives shared in chunks.

    Returns:
        A scalar.
    """
    ends, slots = chunked_rows(h, pairs)
    weight = None if slots is None else _ones_at(slots, ends[0].kept)
    losses = [
        softmax_products(decoder.query_of(rows.kept, rows.relation, end=rows.end), rows.other, rows.candidates, weight)
        for rows in ends
    ]
    return torch.stack(losses).sum()


def compares_by_products(decoder: Decoder) -> bool:
    """Return whether a decoder's scores are inner products of its queries with rows."""
    kind = type(decoder)
    return kind.compare is Decoder.compare and kind.compare_all is Decoder.compare_all


def softmax_products(query: Tensor, other: Tensor, candidates: Tensor, weight: Tensor | None = None) -> Tensor:
    """Sum the cross entropies of each pair's score among itself and its candidates': `softmax_pair_loss` of products.

    The scores of candidates are never all in memory: the gradients of a block of them are computed with it, for a
    gradient of 1 of the sum, which the backward pass multiplies by the actual one.

    Args:
        query: floating [chunks, n, dim].
        other: [chunks, n, dim], so that the pair's score is its inner product with the query.
        candidates: [chunks, k, dim], so that their scores are the inner products with the queries of their chunk.
        weight: [chunks, n], factor of each pair's loss; None: 1.

    Returns:
        A scalar.
    """
    return _SoftmaxProducts.apply(query, other, candidates, weight)


class _SoftmaxProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, other: Tensor, candidates: Tensor, weight: Tensor | None) -> Tensor:
        positive = (query * other).sum(-1)
        losses, own = torch.empty_like(positive), torch.empty_like(positive)
        d_query, d_candidates = torch.empty_like(query), torch.zeros_like(candidates)
        for chunks, rows in _blocks(query, candidates):
            block = chunks, rows
            queries, against = query[block], candidates[chunks]
            scores = queries @ against.transpose(1, 2)
            highest = torch.maximum(positive[block], scores.amax(2)) if scores.shape[2] else positive[block]
            exponentials = scores.sub_(highest.unsqueeze(2)).exp_()
            alone = (positive[block] - highest).exp_()
            total = exponentials.sum(2).add_(alone)
            losses[block] = total.log() + (highest - positive[block])
            scale = total.reciprocal() if weight is None else weight[block] / total
            own[block] = alone * scale
            d_query[block] = (exponentials @ against).mul_(scale.unsqueeze(2))
            d_candidates[chunks].baddbmm_(exponentials.transpose(1, 2), queries * scale.unsqueeze(2))
        own -= 1 if weight is None else weight
        ctx.save_for_backward(d_query.addcmul_(own.unsqueeze(2), other), query * own.unsqueeze(2), d_candidates)
        return (losses if weight is None else losses * weight).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        return *(gradient * grad for gradient in ctx.saved_tensors), None


def _ones_at(slots: Tensor, rows: Tensor) -> Tensor:
    """Return [chunks, size]: 1 where there is a pair, 0 where a chunk is filled up."""
    weight = rows.new_zeros(rows.shape[0] * rows.shape[1])
    return weight.index_fill_(0, slots, 1).view(rows.shape[:2])


def _blocks(query: Tensor, candidates: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield chunks, and pairs of them, whose scores have at most `_BLOCK_BYTES`: all pairs of several chunks, or some."""
    chunks, pairs = query.shape[:2]
    row_bytes = max(1, candidates.shape[1] * query.element_size())
    some = max(1, min(pairs, _BLOCK_BYTES // row_bytes))
    group = max(1, _BLOCK_BYTES // (row_bytes * max(1, pairs)))
    for first in range(0, chunks, group):
        for row in range(0, pairs, some):
            yield slice(first, first + group), slice(row, row + some)
