"""How many candidates score higher than the true end of a triple, and how many equally: sums over parts of the nodes.

A matrix product rounds a score differently in another place of another product. Scores that are within its error of the
true one are therefore computed again by the decoder's own equation, pair by pair: only these can tie or change sides.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.kernels.score_counts import count_scores
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.nn.decoders import Decoder
from workbench.training.row_parts import RowRanges
from workbench.training.triple_scores import CandidateRows, Index, TripleScores

_BYTES_PER_SCORE = 32  # a score, its comparisons and, at worst, its position
_BYTES_PER_VALUE = 48  # of a pair that is scored alone: both rows and the query in float64, and what they are made of
_LEAST_QUERIES = 64  # of a matrix product


@dataclass(frozen=True, eq=False)
class Ranking:
    """Triples to rank whose own rows fit into memory.

    Args:
        decoder: scores triples.
        parts: rows of all nodes.
        triples: int64 [n, 3].
        known: true triples, which do not compete.
        ends: to predict.
        chunk_bytes: limit of the memory taken at a time.
    """

    decoder: Decoder
    parts: RowRanges
    triples: Tensor
    known: KnowledgeGraph | None
    ends: tuple[str, ...]
    chunk_bytes: int


@dataclass(frozen=True, eq=False)
class _Ends:
    """One end of the triples: rows and ids of the kept one and of the true one."""

    end: str
    kept: Tensor
    kept_ids: Tensor
    relation: Tensor
    true: Tensor
    true_ids: Tensor

    def cut(self, size: int) -> "Iterator[tuple[slice, _Ends]]":
        for start in range(0, len(self.kept), size):
            at = slice(start, start + size)
            columns = (self.kept, self.kept_ids, self.relation, self.true, self.true_ids)
            yield at, _Ends(self.end, *(column[at] for column in columns))


def rank_among(ranking: Ranking, candidates: Mapping[str, Tensor | None]) -> Tensor:
    """Rank the ends of triples.

    Args:
        ranking: the triples.
        candidates: int64 [k] or [n, k] by end; None: all nodes.

    Returns:
        float64 [ends, n].
    """
    scores, ends = _ends(ranking)
    counts = torch.zeros(2, len(ends), len(ranking.triples), dtype=torch.int64)
    everyone = {number: of for number, of in enumerate(ends) if candidates[of.end] is None}
    budget, width = ranking.chunk_bytes // 2, ranking.decoder.dim
    block = max(1, min(budget // (16 * width), budget // (_BYTES_PER_SCORE * _LEAST_QUERIES)))
    if everyone:
        for first, rows in ranking.parts.ranges(block):
            prepared = scores.candidates(scores.checked(rows))
            for number, of in everyone.items():
                counts[:, number] += _count_range(ranking, scores, of, first, prepared)
    for number, of in enumerate(ends):
        ids = candidates[of.end]
        if ids is not None:
            counts[:, number] += _count_sampled(ranking, scores, of, ids, block)
    higher, equal = counts.double()
    return 1 + higher + equal / 2


def _ends(ranking: Ranking) -> tuple[TripleScores, list[_Ends]]:
    """Read the rows of both ends, in one pass."""
    head, relation, tail = ranking.triples.unbind(1)
    rows = ranking.parts.read(torch.cat((head, tail)))
    scores = TripleScores.of(ranking.decoder, rows)
    of_head, of_tail = scores.checked(rows).split(len(head))
    relation = relation.to(scores.device)
    dst, src = (of_head, head, relation, of_tail, tail), (of_tail, tail, relation, of_head, head)
    return scores, [_Ends(end, *(dst if end == "dst" else src)) for end in ranking.ends]


def _count_range(ranking: Ranking, scores: TripleScores, of: _Ends, first: int, candidates: CandidateRows) -> Tensor:
    """Count among the nodes of a range, int64 [2, n]."""
    number = len(candidates.rows)
    size = max(1, ranking.chunk_bytes // 2 // (_BYTES_PER_SCORE * number))
    counts = []
    for _, part in of.cut(min(size, _pairs_at_a_time(ranking))):
        row, column = _excluded(ranking.known, part)
        here = (column >= first) & (column < first + number)
        excluded = row[here].to(scores.device), column[here].to(scores.device) - first
        counts.append(_count(ranking, scores, part, candidates, excluded))
    return torch.cat(counts, 1)


def _pairs_at_a_time(ranking: Ranking) -> int:
    """How many pairs are scored together in float64."""
    return max(1, ranking.chunk_bytes // 8 // (_BYTES_PER_VALUE * ranking.decoder.dim))


def _excluded(known: KnowledgeGraph | None, part: _Ends) -> tuple[Tensor, Tensor]:
    """Queries and nodes that do not compete: the true one, and all that make known triples."""
    own = torch.arange(len(part.true_ids))
    if known is None:
        return own, part.true_ids
    relation = part.relation.cpu()
    of_end = known.tail_filter if part.end == "dst" else known.head_filter
    row, node = of_end(part.kept_ids, relation) if part.end == "dst" else of_end(relation, part.kept_ids)
    return torch.cat((own, row)), torch.cat((part.true_ids, node))


def _count_sampled(ranking: Ranking, scores: TripleScores, of: _Ends, ids: Tensor, block: int) -> Tensor:
    """Count among given candidates, int64 [2, n]."""
    shared, width = ids.dim() == 1, ids.shape[-1]
    if shared and width > block:
        return torch.stack([_count_sampled(ranking, scores, of, part, block) for part in ids.split(block)]).sum(0)
    per_query = _BYTES_PER_SCORE * width + (0 if shared else 16 * ranking.decoder.dim * width)
    common = scores.candidates(scores.checked(ranking.parts.read(ids))) if shared else None
    counts = [torch.zeros(2, 0, dtype=torch.int64)]
    size = max(1, ranking.chunk_bytes // 2 // max(1, per_query))
    for at, part in of.cut(min(size, _pairs_at_a_time(ranking))):
        own = ids.expand(len(part.kept), -1) if shared else ids[at]
        candidates = common
        if candidates is None:
            rows = scores.checked(ranking.parts.read(own.flatten()))
            candidates = scores.candidates(rows.view(len(own), width, rows.shape[-1]))
        excluded = _among(_excluded(ranking.known, part), own, ranking.parts.num_rows).to(scores.device)
        counts.append(_count(ranking, scores, part, candidates, excluded))
    return torch.cat(counts, 1)


def _among(excluded: tuple[Tensor, Tensor], ids: Tensor, num_nodes: int) -> Tensor:
    """Which candidates [n, k] do not compete."""
    row, node = excluded
    keys = torch.arange(len(ids))[:, None] * num_nodes + ids
    return torch.isin(keys, row * num_nodes + node)


def _count(ranking: Ranking, scores: TripleScores, part: _Ends, candidates: CandidateRows, excluded: Index) -> Tensor:
    """Count the scores above the true one and those equal to it, int64 [2, n], on the CPU.

    Args:
        ranking: limits the memory.
        scores: of the decoder.
        part: the ends.
        candidates: [k, dim], the same for all, or [n, k, dim].
        excluded: index of the candidates that do not compete, in [n, k].
    """
    queries = scores.queries(part.kept, part.relation, part.end)
    true = scores.of_pairs(queries, slice(None), part.true)
    quick, error = scores.of_all(queries, candidates, true, excluded)
    above, row, column = count_scores(quick, *_around(true, error, quick.dtype))
    counts = torch.stack((above, torch.zeros_like(above)))
    at = row * quick.shape[1] + column if candidates.rows.dim() == 3 else column
    rows = candidates.rows.flatten(0, -2)
    for q, r in zip(*(positions.split(_pairs_at_a_time(ranking)) for positions in (row, at)), strict=True):
        exact = scores.of_pairs(queries, q, rows[r])
        counts[0].index_add_(0, q, (exact > true[q]).long())
        counts[1].index_add_(0, q, (exact == true[q]).long())
    return counts.cpu()


def _around(true: Tensor, error: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Ends of the interval in which quick scores decide nothing; −∞, the score of the excluded, is below any."""
    return (true - error).to(dtype).clamp(min=torch.finfo(dtype).min), (true + error).to(dtype)
