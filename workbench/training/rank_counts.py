"""How many candidates score higher than the true end of a triple, and how many equally: sums over parts of the nodes.

A matrix product rounds a score differently in another place of another product. Scores that are within rounding of the
true one are therefore computed again by the decoder's own equation, pair by pair: only these can tie or change sides.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.kernels.score_counts import count_scores
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.nn.decoder import Decoder
from workbench.nn.decoders import TransE
from workbench.training.row_parts import RowRanges

_BYTES_PER_SCORE = 32  # a score, its comparisons and, at worst, its position
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
class _Queries:
    """One end of the triples: rows of the kept end, and the score and the id of the true one."""

    end: str
    kept: Tensor
    kept_ids: Tensor
    relation: Tensor
    true_ids: Tensor
    true_scores: Tensor
    rounding: Tensor

    def cut(self, size: int) -> "Iterator[tuple[slice, _Queries]]":
        for start in range(0, len(self.kept), size):
            at = slice(start, start + size)
            columns = (self.kept, self.kept_ids, self.relation, self.true_ids, self.true_scores, self.rounding)
            yield at, _Queries(self.end, *(column[at] for column in columns))


def rank_among(ranking: Ranking, candidates: Mapping[str, Tensor | None]) -> Tensor:
    """Rank the ends of triples.

    Args:
        ranking: the triples.
        candidates: int64 [k] or [n, k] by end; None: all nodes.

    Returns:
        float64 [ends, n].
    """
    queries = _queries(ranking)
    counts = torch.zeros(2, len(queries), len(ranking.triples), dtype=torch.int64)
    everyone = {number: q for number, q in enumerate(queries) if candidates[q.end] is None}
    budget, width = ranking.chunk_bytes // 2, ranking.decoder.dim
    block = max(1, min(budget // (8 * width), budget // (_BYTES_PER_SCORE * _LEAST_QUERIES)))
    if everyone:
        for first, rows in ranking.parts.ranges(block):
            for number, query in everyone.items():
                counts[:, number] += _count_range(ranking, query, first, _checked(rows.to(query.kept)))
    for number, query in enumerate(queries):
        ids = candidates[query.end]
        if ids is not None:
            counts[:, number] += _count_sampled(ranking, query, ids, block)
    higher, equal = counts.double()
    return 1 + higher + equal / 2


def _queries(ranking: Ranking) -> list[_Queries]:
    """Read the rows of both ends, in one pass, and score the true triples."""
    head, relation, tail = ranking.triples.unbind(1)
    parameters = list(ranking.decoder.parameters())
    rows = _checked(ranking.parts.read(torch.cat((head, tail))))
    rows = rows.to(parameters[0]) if parameters else rows
    of_head, of_tail = rows.split(len(head))
    relation = relation.to(rows.device)
    found = []
    for end in ranking.ends:
        kept, kept_ids, ids = (of_head, head, tail) if end == "dst" else (of_tail, tail, head)
        scores = ranking.decoder(of_head, _relations(ranking.decoder, relation), of_tail, end=end)
        if scores.isnan().any():
            raise ValueError("scores contain NaN; a model whose training diverged has no ranks")
        sizes = _sizes(ranking.decoder, kept, relation, end)
        found.append(_Queries(end, kept, kept_ids, relation, ids, scores, sizes))
    return found


def _relations(decoder: Decoder, relation: Tensor) -> Tensor | None:
    return relation if decoder.num_relations else None


def _sizes(decoder: Decoder, kept: Tensor, relation: Tensor, end: str) -> Tensor:
    """Norms of the queries [n], which bound how far products of theirs are rounded."""
    return torch.linalg.vector_norm(decoder.query_of(kept, _relations(decoder, relation), end=end), dim=-1)


def _tolerance(decoder: Decoder, query: _Queries, largest: Tensor) -> Tensor:
    """How far a score from a matrix product may be from that of the pair, [n]."""
    unit = 4 * (decoder.dim + 4) * torch.finfo(query.kept.dtype).eps
    if isinstance(decoder, TransE):  # distances are roots of differences of squares
        error = unit * (query.rounding + largest) ** 2
        return error / torch.maximum(query.true_scores.abs(), error.sqrt()).clamp(min=torch.finfo(error.dtype).tiny)
    return unit * query.rounding * largest


def _count_range(ranking: Ranking, query: _Queries, first: int, rows: Tensor) -> Tensor:
    """Count among the nodes of a range, int64 [2, n]."""
    size = max(1, ranking.chunk_bytes // 2 // (_BYTES_PER_SCORE * len(rows)))
    largest = torch.linalg.vector_norm(rows, dim=-1).max()
    counts = []
    for _, part in query.cut(size):
        scores = ranking.decoder.against(part.kept, _relations(ranking.decoder, part.relation), rows, end=part.end)
        row, column = _excluded(ranking.known, part)
        column = column - first
        here = (column >= 0) & (column < len(rows))
        scores[row[here].to(scores.device), column[here].to(scores.device)] = -torch.inf
        counts.append(_count(ranking, part, scores, _tolerance(ranking.decoder, part, largest), rows, None))
    return torch.cat(counts, 1)


def _excluded(known: KnowledgeGraph | None, part: _Queries) -> tuple[Tensor, Tensor]:
    """Queries and nodes that do not compete: the true one, and all that make known triples."""
    own = torch.arange(len(part.true_ids))
    if known is None:
        return own, part.true_ids
    relation = part.relation.cpu()
    of_end = known.tail_filter if part.end == "dst" else known.head_filter
    row, node = of_end(part.kept_ids, relation) if part.end == "dst" else of_end(relation, part.kept_ids)
    return torch.cat((own, row)), torch.cat((part.true_ids, node))


def _count_sampled(ranking: Ranking, query: _Queries, ids: Tensor, block: int) -> Tensor:
    """Count among given candidates, int64 [2, n]."""
    shared, width = ids.dim() == 1, ids.shape[-1]
    if shared and width > block:
        return torch.stack([_count_sampled(ranking, query, part, block) for part in ids.split(block)]).sum(0)
    per_query = _BYTES_PER_SCORE * width + (0 if shared else 8 * ranking.decoder.dim * width)
    rows = _checked(ranking.parts.read(ids).to(query.kept)) if shared else None
    counts = [torch.zeros(2, 0, dtype=torch.int64)]
    for at, part in query.cut(max(1, ranking.chunk_bytes // 2 // max(1, per_query))):
        own = ids.expand(len(part.kept), -1) if shared else ids[at]
        of = rows if rows is not None else _checked(ranking.parts.read(own.flatten()).to(part.kept))
        relation = _relations(ranking.decoder, part.relation)
        if shared:
            scores = ranking.decoder.against(part.kept, relation, of, end=part.end)
        else:
            grouped = of.view(len(own), width, -1)
            one = None if relation is None else relation[:, None]
            scores = ranking.decoder.against(part.kept[:, None], one, grouped, end=part.end)[:, 0]
        scores.masked_fill_(_among(_excluded(ranking.known, part), own, ranking.parts.num_rows), -torch.inf)
        largest = torch.linalg.vector_norm(of, dim=-1).max() if len(of) else of.new_zeros(())
        starts = None if shared else torch.arange(len(own)) * width
        counts.append(_count(ranking, part, scores, _tolerance(ranking.decoder, part, largest), of, starts))
    return torch.cat(counts, 1)


def _among(excluded: tuple[Tensor, Tensor], ids: Tensor, num_nodes: int) -> Tensor:
    """Which candidates [n, k] do not compete."""
    row, node = excluded
    keys = torch.arange(len(ids))[:, None] * num_nodes + ids
    return torch.isin(keys, row * num_nodes + node)


def _count(
    ranking: Ranking, part: _Queries, scores: Tensor, tolerance: Tensor, rows: Tensor, starts: Tensor | None
) -> Tensor:
    """Count the scores above the true one and those equal to it, int64 [2, n], on the CPU.

    Args:
        ranking: the decoder.
        part: the queries.
        scores: [n, k], −∞ for candidates that do not compete.
        tolerance: [n].
        rows: of the candidates: [k, dim], or one after another for every query.
        starts: where a query's candidates begin in `rows`; None: they are the same for all.
    """
    low, high = part.true_scores - tolerance, part.true_scores + tolerance
    above, row, column = count_scores(scores, low, high)
    counts = torch.stack((above, torch.zeros_like(above)))
    at = column if starts is None else starts.to(column.device)[row] + column
    size = max(1, ranking.chunk_bytes // 8 // (16 * ranking.decoder.dim))
    for q, r in zip(row.split(size), at.split(size), strict=True):
        exact, true = _scores_of_pairs(ranking.decoder, part, q, rows[r]), part.true_scores[q]
        counts[0].index_add_(0, q, (exact > true).long())
        counts[1].index_add_(0, q, (exact == true).long())
    return counts.cpu()


def _scores_of_pairs(decoder: Decoder, part: _Queries, query: Tensor, rows: Tensor) -> Tensor:
    kept, relation = part.kept[query], _relations(decoder, part.relation[query])
    head, tail = (kept, rows) if part.end == "dst" else (rows, kept)
    return decoder(head, relation, tail, end=part.end)


def _checked(rows: Tensor) -> Tensor:
    if rows.isnan().any():
        raise ValueError("rows contain NaN; a model whose training diverged has no ranks")
    return rows
