"""Ranks of triples among candidates, by the decoder's equation in float64 and quick scores whose error is bounded.

In half precision, and at large or small scales in any, scores overflow, underflow or tie by rounding. So pairs are
scored in float64, and matrix products in float32 decide only what differs from the true score by more than their error.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from workbench.kernels.score_counts import count_scores
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.nn.decoders import Decoder, TransE
from workbench.training.row_parts import RowRanges

M = TypeVar("M", bound=nn.Module)

Index = Tensor | tuple[Tensor, ...]

_LEAST, _MOST = 1e-15, 1e15  # float32 holds squares of these and their sums

_UNSEEN = 1e-150  # a norm in float64 misses what is smaller, whose square is 0

_REMEDIES = {torch.float16: "rows.float()", torch.float64: "rows and relations divided by one number"}


@dataclass(frozen=True, eq=False)
class Queries:
    """Pairs to score, of which one end is kept.

    Args:
        end: the end that is predicted.
        kept: [n, dim], rows of the other end, as they were given.
        relation: int64 [n]; None for a decoder without relations.
        query: float64 [n, dim].
    """

    end: str
    kept: Tensor
    relation: Tensor | None
    query: Tensor


@dataclass(frozen=True, eq=False)
class CandidateRows:
    """Rows of candidates, and what their products need.

    Args:
        rows: [k, dim], or [n, k, dim] of each query, as they were given.
        quick: the same in float32 if it holds their squares, else in float64.
        norm: float64 scalar, upper bound of their norms.
    """

    rows: Tensor
    quick: Tensor
    norm: Tensor


@dataclass(frozen=True, eq=False)
class TripleScores:
    """Scores of one decoder for rows of one dtype.

    Args:
        decoder: its equation, with parameters in float64.
        dtype: that rows and parameters promote to; scores must be finite in it.
        device: of the decoder's parameters, or else of the rows.
    """

    decoder: Decoder
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, decoder: Decoder, rows: Tensor) -> "TripleScores":
        """Take dtype and device from the decoder and from some of the rows."""
        dtype, parameters = _floating(rows), list(decoder.parameters())
        for parameter in parameters:
            dtype = torch.promote_types(dtype, _floating(parameter))
        return cls(_in_float64(decoder), dtype, parameters[0].device if parameters else rows.device)

    def checked(self, rows: Tensor) -> Tensor:
        """Check that rows are finite, and move them to the device."""
        rows = rows.to(self.device)
        if rows.numel() and not bool(torch.stack(torch.aminmax(rows)).isfinite().all()):
            raise ValueError(
                f"rows in {rows.dtype} contain NaN or infinity, so {self._name} has no ranks for them: training "
                f"diverged, or they exceeded {torch.finfo(rows.dtype).max:.4g} when they were converted; lower the "
                "learning rate, or keep them in float32"
            )
        return rows

    def queries(self, kept: Tensor, relation: Tensor, end: str) -> Queries:
        """Compute the queries of kept ends [n, dim] with relations int64 [n]."""
        of = relation if self.decoder.num_relations else None
        return Queries(end, kept, of, self.decoder.query_of(kept.double(), of, end=end))

    def of_pairs(self, queries: Queries, at: Tensor | slice, rows: Tensor) -> Tensor:
        """Score pairs in float64 [m]: of the queries `at`, int64 [m], with the rows [m, dim] of the other end.

        Raises:
            ValueError: A score is not finite in the dtype of the scores.
        """
        if type(self.decoder).forward is Decoder.forward:
            scores = self.decoder.compare(queries.query[at], rows.double())
        else:
            pair = queries.kept[at].double(), rows.double()
            head, tail = pair if queries.end == "dst" else pair[::-1]
            of = None if queries.relation is None else queries.relation[at]
            scores = self.decoder(head, of, tail, end=queries.end)
        self._check_finite(scores)
        return scores.double()

    def candidates(self, rows: Tensor) -> CandidateRows:
        """Prepare finite rows [k, dim] or [n, k, dim] for products."""
        if not rows.numel():
            return CandidateRows(rows, rows.float(), rows.new_zeros((), dtype=torch.float64))
        low, high = torch.aminmax(rows)
        quick = rows.element_size() <= 4 and _LEAST <= max(-float(low), float(high)) <= _MOST and _precise_products()
        converted = rows.to(torch.float32 if quick else torch.float64)
        return CandidateRows(rows, converted, _norms(converted).max())

    def of_all(
        self, queries: Queries, candidates: CandidateRows, true: Tensor, excluded: Index
    ) -> tuple[Tensor, Tensor]:
        """Score all candidates by matrix products.

        Returns:
            Floating [n, k], and float64 [n]: a score that differs from the true one by more than this is on that side
            of it in float64, too. Infinity if products decide nothing, as for an equation of the caller's own.
        """
        shape, kind = (len(true), candidates.rows.shape[-2]), _kind(self.decoder)
        if kind is None:
            scores, error = candidates.quick.new_zeros(shape), torch.full_like(true, torch.inf)
        else:
            query, norms = queries.query.to(candidates.quick.dtype), _norms(queries.query)
            query = query[:, None] if candidates.rows.dim() == 3 else query
            with torch.autocast(self.device.type, enabled=False):  # which would round both to 8 bits
                scores = self.decoder.compare_all(query, candidates.quick).view(shape)
            error, reach = self._error(norms, candidates, true), self._reach(norms, candidates.norm)
            if not bool((reach <= torch.finfo(self.dtype).max).all()):
                scores[excluded] = 0.0
                self._check_finite(torch.where(error.isfinite()[:, None], scores, 0.0))
        scores[excluded] = -torch.inf
        return scores, error

    def _error(self, norms: Tensor, candidates: CandidateRows, true: Tensor) -> Tensor:
        """Bounds for the error of products, [n]; infinity where the bound itself is out of range."""
        dim, limits = self.decoder.dim, torch.finfo(candidates.quick.dtype)
        unit, lost = 4 * (dim + 4) * limits.eps, 4 * dim * limits.tiny * (1 + norms + candidates.norm)
        error = unit * norms * candidates.norm + lost
        if isinstance(self.decoder, TransE):
            if self.decoder.p == 1:
                error = unit * (true.abs() + dim**0.5 * norms) + lost
            else:  # distances are roots of differences of squares
                error = unit * (norms + candidates.norm) ** 2 + lost
                error = error / torch.maximum(true.abs(), error.sqrt())
        error = error + limits.eps * true.abs()  # of the true score itself, rounded to be compared
        usable = error.isfinite() & ((norms <= _MOST) | (candidates.quick.dtype == torch.float64))
        return torch.where(usable, error, torch.inf)

    def _reach(self, norms: Tensor, largest: Tensor) -> Tensor:
        """Upper bounds for the magnitude of scores, [n]."""
        return self.decoder.dim**0.5 * (norms + largest) if isinstance(self.decoder, TransE) else norms * largest

    def _check_finite(self, scores: Tensor) -> None:
        if not bool(scores.to(self.dtype).isfinite().all()):
            raise ValueError(
                f"scores of {self._name} in {self.dtype} are not finite, so they can't be ranked: they exceed "
                f"{torch.finfo(self.dtype).max:.4g} or are NaN; pass {_REMEDIES.get(self.dtype, 'rows.double()')}, or "
                "lower the learning rate if training diverged"
            )

    @property
    def _name(self) -> str:
        return type(self.decoder).__name__


def _kind(decoder: Decoder) -> type[Decoder] | None:
    """The class that defines how the decoder compares queries with rows; None if the error of that is unknown."""
    names = ("forward", "against", "compare", "compare_all")
    same = (k for k in (TransE, Decoder) if all(getattr(type(decoder), name) is getattr(k, name) for name in names))
    return next(same, None)


def _norms(rows: Tensor) -> Tensor:
    """Upper bounds of the rows' norms, float64."""
    return torch.linalg.vector_norm(rows, dim=-1).double() + rows.shape[-1] ** 0.5 * _UNSEEN


def _precise_products() -> bool:
    """Tell whether products of float32 are not rounded further, to TF32 or bfloat16."""
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # it was set for one backend alone
        return False


def _floating(values: Tensor) -> torch.dtype:
    return values.dtype if values.is_floating_point() else torch.get_default_dtype()


def _in_float64(module: M) -> M:
    """A copy of a module with parameters and buffers in float64, which shares all else."""
    view = copy.copy(module)
    view._parameters = {name: _wide(value) for name, value in module._parameters.items()}  # type: ignore[assignment]
    view._buffers = {name: _wide(value) for name, value in module._buffers.items()}
    view._modules = {name: child and _in_float64(child) for name, child in module._modules.items()}
    return view


def _wide(values: Tensor | None) -> Tensor | None:
    if values is None or not (values.is_floating_point() or values.is_complex()):
        return values
    return values.detach().to(torch.complex128 if values.is_complex() else torch.float64)


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
    """Rank the ends of triples among candidates, int64 [k] or [n, k] by end (None: all nodes); float64 [ends, n]."""
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

    `excluded` is the index, in [n, k], of the candidates that do not compete.
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
