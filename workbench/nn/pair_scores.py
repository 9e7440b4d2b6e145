"""`pair_scores`: scores of a batch's positive pairs and of their negatives, end by end."""

from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.errors import check_type
from workbench.links.edge_batch import EdgeBatch
from workbench.nn.decoder import ENDS, Decoder
from workbench.nn.pair_rows import pair_rows


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
    return [_per_pair(decoder, h, pairs)] if pairs.chunk is None else _shared(decoder, h, pairs)


def _shared(decoder: Decoder, h: Tensor, pairs: EdgeBatch) -> list[PairScores]:
    at, slots = chunk_layout(pairs)
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


def chunk_layout(pairs: EdgeBatch) -> tuple[Tensor, Tensor | None]:
    """Lay pairs out by chunks, with as many columns as the largest chunk has pairs.

    Args:
        pairs: with chunks.

    Returns:
        Pairs, int64 [chunks, size], where smaller chunks are filled up with pair 0; and where each pair is in them,
        int64 [num_pairs], or None if the pairs are there one after another.
    """
    assert pairs.chunk is not None
    every = torch.arange(pairs.num_pairs, device=pairs.device)
    size = pairs.num_pairs // max(1, pairs.num_chunks)
    if size * pairs.num_chunks == pairs.num_pairs and torch.equal(pairs.chunk, every // max(1, size)):
        return every.view(-1, max(1, size)), None
    counts = torch.bincount(pairs.chunk, minlength=pairs.num_chunks)
    size, order = int(counts.max()), torch.argsort(pairs.chunk, stable=True)
    chunk = pairs.chunk[order]
    slots = torch.empty_like(every)
    slots[order] = chunk * size + every - (counts.cumsum(0) - counts)[chunk]
    at = every.new_zeros(pairs.num_chunks * size).index_copy_(0, slots, every)
    return at.view(-1, size), slots


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
