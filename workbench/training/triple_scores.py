"""Scores that ranks are made of: those of the decoder's equation in float64, and quick ones whose error is bounded.

In half precision, and at large or small scales in any, scores overflow, underflow or tie by rounding. So pairs are
scored in float64, and matrix products in float32 decide only what differs from the true score by more than their error.
"""

import copy
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from workbench.nn.decoders import Decoder, TransE

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
        """Check that rows are finite, and move them to the device.

        Raises:
            ValueError: They contain NaN or infinity.
        """
        rows = rows.to(self.device)
        if rows.numel() and not bool(torch.stack(torch.aminmax(rows)).isfinite().all()):
            raise ValueError(
                f"rows in {rows.dtype} contain NaN or infinity, so {self._name} has no ranks for them: training "
                f"diverged, or they exceeded {torch.finfo(rows.dtype).max:.4g} when they were converted; lower the "
                "learning rate, or keep them in float32"
            )
        return rows

    def queries(self, kept: Tensor, relation: Tensor, end: str) -> Queries:
        """Compute the queries of kept ends.

        Args:
            kept: [n, dim].
            relation: int64 [n].
            end: the end that is predicted.
        """
        of = relation if self.decoder.num_relations else None
        return Queries(end, kept, of, self.decoder.query_of(kept.double(), of, end=end))

    def of_pairs(self, queries: Queries, at: Tensor | slice, rows: Tensor) -> Tensor:
        """Score pairs in float64.

        Args:
            queries: of which some are scored.
            at: int64 [m], the query of every pair.
            rows: [m, dim], the other end of every pair.

        Returns:
            float64 [m].

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
        """Prepare rows for products.

        Args:
            rows: finite [k, dim] or [n, k, dim].
        """
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

        Args:
            queries: n of them.
            candidates: k of them.
            true: float64 [n], scores that these are compared with.
            excluded: index of the scores that are −∞ instead.

        Returns:
            Floating [n, k], and float64 [n]: a score that differs from the true one by more than this is on that side
            of it in float64, too. Infinity if products decide nothing, as for an equation of the caller's own.

        Raises:
            ValueError: A score is not finite in the dtype of the scores.
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
