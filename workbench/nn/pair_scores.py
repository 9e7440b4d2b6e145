"""`pair_scores`: scores of a batch's positive pairs and of their negatives, end by end."""

from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.errors import check_type
from workbench.links.edge_batch import EdgeBatch
from workbench.nn.decoders import ENDS, Decoder


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
        `workbench.false_negatives`; a single one of "dst" for negatives per pair or without negatives.

    Raises:
        TypeError: an argument of another type, or pairs without relations if the decoder has some.
        ValueError: rows of another width or number.
        IndexError: a relation that the decoder does not have.
    """
    check_type("decoder", decoder, Decoder, "pass a decoder such as wb.DistMult(dim, num_relations=…)")
    check_type("pairs", pairs, EdgeBatch, "pass an EdgeBatch (edge_batches yields them)")
    if len(h) != len(pairs.seeds):
        raise ValueError(f"h has {len(h)} rows, but the pairs have {len(pairs.seeds)} seeds; pass a row per seed")
    ends = [end for end in ENDS if pairs.chunk is not None and getattr(pairs, f"neg_{end}") is not None]
    return [_shared(decoder, h, pairs, end) for end in ends] or [_per_pair(decoder, h, pairs)]


def _shared(decoder: Decoder, h: Tensor, pairs: EdgeBatch, end: str) -> PairScores:
    src, dst = h[pairs.src], h[pairs.dst]
    positive = decoder(src, pairs.relation, dst, end=end)
    at, slots = _slots(pairs)
    kept, relation = (src if end == "dst" else dst)[at], None if pairs.relation is None else pairs.relation[at]
    negatives = pairs.neg_src if end == "src" else pairs.neg_dst
    assert negatives is not None
    scores = decoder.against(kept, relation, h[negatives], end=end)
    return PairScores(end, positive, scores.flatten(0, 1) if slots is None else scores.flatten(0, 1)[slots])


def _slots(pairs: EdgeBatch) -> tuple[Tensor, Tensor | None]:
    """Return the pairs of each chunk, [chunks, size], and each pair's position in them; None if that is its own.

    Chunks with fewer pairs than the largest repeat pair 0, of which the scores are not used.
    """
    assert pairs.chunk is not None
    sizes = pairs.chunk_sizes()
    size, every = max(sizes, default=0), torch.arange(pairs.num_pairs, device=pairs.device)
    order = torch.argsort(pairs.chunk, stable=True)
    if all(s == size for s in sizes) and torch.equal(order, every):
        return every.view(len(sizes), size), None
    first = torch.tensor([0, *sizes[:-1]], device=pairs.device).cumsum(0)
    chunk = pairs.chunk[order]
    slots = torch.empty_like(every)
    slots[order] = chunk * size + every - first[chunk]
    return every.new_zeros(len(sizes) * size).index_copy_(0, slots, every).view(len(sizes), size), slots


def _per_pair(decoder: Decoder, h: Tensor, pairs: EdgeBatch) -> PairScores:
    positive = decoder(h[pairs.src], pairs.relation, h[pairs.dst])
    if pairs.neg_src is None or pairs.neg_dst is None:
        return PairScores("dst", positive, positive.new_empty(len(positive), 0))
    relation = None if pairs.relation is None else pairs.relation.repeat_interleave(pairs.num_negatives)
    negative = decoder(h[pairs.neg_src], relation, h[pairs.neg_dst])
    return PairScores("dst", positive, negative.view(pairs.num_pairs, -1))
