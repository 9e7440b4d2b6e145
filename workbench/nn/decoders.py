"""`Decoder`: scores of (head, relation, tail) from rows of nodes, of positive pairs and against many candidates."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from workbench.core.errors import check_at_least, check_choice, check_type, find_out_of_range
from workbench.kernels.gather import add_rows, gather_rows
from workbench.kernels.segment import compute_dtype

ENDS = ("src", "dst")


class Decoder(nn.Module):
    """Scores pairs of nodes; `query` and `compare` of a subclass are its equation.

    A score compares a query, made of the relation and the end that is kept, with the row of the other end: against many
    candidates, that is a matrix product. With `inverse`, a source is predicted from its destination as the destination
    of the inverse relation, which has an embedding of its own; a pair then has a score per end.

    Args:
        dim: width of the rows.
        num_relations: number of relations; 0 for a decoder without.
        inverse: give the inverse of every relation an embedding of its own: row r + num_relations of `relations`.
        std: standard deviation of the normal distribution that relation embeddings start from.

    Raises:
        ValueError: a number out of range.
    """

    relations: nn.Parameter

    def __init__(self, dim: int, *, num_relations: int, inverse: bool = False, std: float = 1e-3) -> None:
        super().__init__()
        check_at_least("dim", dim, 1)
        check_at_least("num_relations", num_relations, 0)
        if not std >= 0:
            raise ValueError(f"std is {std!r}; it must not be negative")
        self.dim, self.num_relations, self.inverse, self.std = dim, num_relations, inverse, std
        if num_relations:
            self.relations = nn.Parameter(torch.empty(num_relations * (2 if inverse else 1), dim))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the relation embeddings from N(0, std²)."""
        nn.init.normal_(self.relations, std=self.std)

    def forward(self, head: Tensor, relation: Tensor | None, tail: Tensor, *, end: str = "dst") -> Tensor:
        """Score triples.

        Args:
            head: floating [n, dim], rows of the sources.
            relation: integer [n]; None for a decoder without relations.
            tail: floating [n, dim], rows of the destinations.
            end: the end that is predicted, "dst" or "src"; only with `inverse` it makes a difference.

        Returns:
            [n]; the higher, the likelier.
        """
        kept, other = (head, tail) if end == "dst" else (tail, head)
        return self.compare(self.query_of(kept, relation, end=end), other)

    def against(self, kept: Tensor, relation: Tensor | None, candidates: Tensor, *, end: str = "dst") -> Tensor:
        """Score every candidate in the place of one end of every pair, by matrix products.

        Args:
            kept: floating [n, dim], rows of the end that is kept: sources if `end` is "dst"; or [chunks, n, dim].
            relation: integer [n] or [chunks, n]; None for a decoder without relations.
            candidates: floating [k, dim], rows of the nodes that replace the other end; or [chunks, k, dim], each for
                the pairs of its chunk.
            end: the end that candidates replace, "dst" or "src".

        Returns:
            [n, k] or [chunks, n, k].
        """
        return self.compare_all(self.query_of(kept, relation, end=end), candidates)

    def scores(
        self, kept: Tensor, relation: Tensor | None, other: Tensor, candidates: Tensor, *, end: str = "dst"
    ) -> tuple[Tensor, Tensor]:
        """Score pairs and every candidate in the place of one of their ends: `forward` and `against` at once.

        Args:
            kept: floating [n, dim] or [chunks, n, dim], rows of the end that is kept.
            relation: integer [n] or [chunks, n]; None for a decoder without relations.
            other: like `kept`, rows of the end that is predicted.
            candidates: floating [k, dim] or [chunks, k, dim].
            end: the end that is predicted, "dst" or "src".

        Returns:
            Scores of the pairs, [n] or [chunks, n], and of the candidates, [n, k] or [chunks, n, k].
        """
        kind = type(self)
        if kind.forward is not Decoder.forward or kind.against is not Decoder.against:  # the subclass's equation
            head, tail = (rows.flatten(0, -2) for rows in ((kept, other) if end == "dst" else (other, kept)))
            positive = self(head, None if relation is None else relation.flatten(), tail, end=end)
            return positive.view(kept.shape[:-1]), self.against(kept, relation, candidates, end=end)
        query = self.query_of(kept, relation, end=end)
        return self.compare(query, other), self.compare_all(query, candidates)

    def query(self, kept: Tensor, relation: Any, end: str) -> Tensor:
        """Combine the rows of the kept end with those of the relations, [n, dim].

        Args:
            kept: floating [..., n, dim].
            relation: floating [..., n, dim], rows of `relations`; None for a decoder without.
            end: the end that is predicted.
        """
        raise NotImplementedError

    def compare(self, query: Tensor, row: Tensor) -> Tensor:
        """Score each query with its own row: [..., n, dim] twice give [..., n]."""
        return (query * row).sum(-1)

    def compare_all(self, query: Tensor, rows: Tensor) -> Tensor:
        """Score each query with all rows: [..., n, dim] and [..., k, dim] give [..., n, k]."""
        return _Products.apply(query, rows)

    def query_of(self, kept: Tensor, relation: Tensor | None, *, end: str = "dst") -> Tensor:
        """Look up the relations and combine them with the rows of the kept end.

        Args:
            kept: floating [..., n, dim].
            relation: integer [..., n]; None for a decoder without relations.
            end: the end that is predicted, "dst" or "src".

        Returns:
            [..., n, dim], for `compare` and `compare_all`.
        """
        check_choice("end", end, ENDS)
        if kept.shape[-1] != self.dim:
            raise ValueError(
                f"rows have width {kept.shape[-1]}, but the decoder has {self.dim}; build it with that dim"
            )
        if not self.num_relations:
            return self.query(kept, None, end)
        inverse = self.inverse and end == "src"
        ids = self.checked_relations(relation)
        (rows,) = pair_rows(self.relations, ids + self.num_relations if inverse else ids)
        return self.query(kept, rows, "dst" if inverse else end)

    def checked_relations(self, relation: Tensor | None, *, waits: bool = False) -> Tensor:
        """Return relations as int64.

        Args:
            relation: integer [...].
            waits: check the range on a GPU, too, for which the host waits.

        Raises:
            TypeError: no relations, or of another type.
            IndexError: a relation that the decoder does not have; on a GPU with `waits` alone.
        """
        remedy = "pass relation= to edge_batches, or zeros for edges of one kind (num_relations=1)"
        check_type("relation", relation, Tensor, remedy)
        assert isinstance(relation, Tensor)
        if relation.dtype.is_floating_point or relation.dtype == torch.bool:
            raise TypeError(f"relation is {relation.dtype}; pass integers")
        on_host = relation.device.type == "cpu"
        bad = find_out_of_range(relation, 0, self.num_relations) if on_host or waits else None
        if bad is not None:
            raise IndexError(
                f"relation contains {bad}, but the decoder has {self.num_relations} relations; build it with "
                "num_relations above the largest (kg.num_relations)"
            )
        return relation.long()

    def extra_repr(self) -> str:
        return f"{self.dim}, num_relations={self.num_relations}, inverse={self.inverse}"


class _Products(torch.autograd.Function):
    """`query @ rowsᵀ`, whose gradients are contiguous; torch's own gradient of `rows` is a transposed view."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(query, rows)
        return query @ rows.transpose(-1, -2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        query, rows = ctx.saved_tensors
        with torch.autocast(grad.device.type, enabled=False):  # which may have been on in the forward pass
            return grad.to(rows.dtype) @ rows, grad.to(query.dtype).transpose(-1, -2) @ query


class DistMult(Decoder):
    """DistMult: `Σ_d h_d · r_d · t_d`.

    Without `inverse`, a pair and its reverse have the same score.

    Source: Yang et al., "Embedding entities and relations for learning and inference in knowledge bases" (ICLR 2015),
    equation 3 with a diagonal matrix; with `inverse` as in MariusGNN (EuroSys 2023).
    """

    def query(self, kept: Tensor, relation: Tensor, end: str) -> Tensor:
        return kept * relation


class ComplEx(Decoder):
    """ComplEx: `Re(Σ_d h_d · r_d · conj(t_d))` over complex rows.

    The first half of a row contains the real parts, the second half the imaginary parts.

    Source: Trouillon et al., "Complex embeddings for simple link prediction" (ICML 2016), equation 10.

    Raises:
        ValueError: an odd `dim`.
    """

    def __init__(self, dim: int, *, num_relations: int, inverse: bool = False, std: float = 1e-3) -> None:
        if dim % 2:
            raise ValueError(f"dim is {dim}; it must be even: half of it are real parts, half imaginary parts")
        super().__init__(dim, num_relations=num_relations, inverse=inverse, std=std)

    def query(self, kept: Tensor, relation: Tensor, end: str) -> Tensor:
        """`h · r` for destinations, `t · conj(r)` for sources: the score is its real inner product with a row."""
        real, imaginary = kept.chunk(2, -1)
        r_real, r_imaginary = relation.chunk(2, -1)
        if end == "src":
            r_imaginary = -r_imaginary
        return torch.cat((real * r_real - imaginary * r_imaginary, real * r_imaginary + imaginary * r_real), -1)


class TransE(Decoder):
    """TransE: `−‖h + r − t‖_p`.

    Distances to candidates are computed from inner products if p is 2 (their squares are exact to the rounding of the
    squared norms), and directly if p is 1; those of half precision in float32, rounded once. Rows are not normalized;
    the paper normalizes them to length 1.

    Args:
        dim: width of the rows.
        num_relations: number of relations.
        p: 1 or 2, the norm.
        inverse: as for `Decoder`.
        std: as for `Decoder`.

    Source: Bordes et al., "Translating embeddings for modeling multi-relational data" (NIPS 2013), section 2.

    Raises:
        ValueError: another `p`.
    """

    def __init__(self, dim: int, *, num_relations: int, p: int = 2, inverse: bool = False, std: float = 1e-3) -> None:
        if p not in (1, 2):
            raise ValueError(f"p is {p!r}; it must be 1 or 2")
        super().__init__(dim, num_relations=num_relations, inverse=inverse, std=std)
        self.p = p

    def query(self, kept: Tensor, relation: Tensor, end: str) -> Tensor:
        return kept + relation if end == "dst" else kept - relation

    def compare(self, query: Tensor, row: Tensor) -> Tensor:
        return -torch.linalg.vector_norm(query - row, self.p, dim=-1)

    def compare_all(self, query: Tensor, rows: Tensor) -> Tensor:
        dtype = compute_dtype(
            query
        )  # in half precision squared norms overflow, and their differences have no digit left
        query_rows = query.to(dtype), rows.to(dtype)
        return -torch.cdist(*query_rows, p=self.p, compute_mode="use_mm_for_euclid_dist").to(query.dtype)


class DotProduct(Decoder):
    """Dot product: `Σ_d h_d · t_d`, for edges of one kind; relations have no influence.

    Args:
        dim: width of the rows.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim, num_relations=0)

    def query(self, kept: Tensor, relation: None, end: str) -> Tensor:
        return kept


def pair_rows(h: Tensor, *positions: Tensor) -> tuple[Tensor, ...]:
    """Gather `h[p]`, [*p.shape, dim], for every p of int64 positions, which must be in [0, len(h)).

    The backward pass has one sum over all positions, in their order.
    """
    return _PairRows.apply(h, *positions)


class _PairRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, *positions: Tensor) -> tuple[Tensor, ...]:
        ctx.positions, ctx.shape, ctx.dtype = positions, h.shape, h.dtype
        ctx.set_materialize_grads(False)
        # On a GPU a check of the range would wait for it.
        take = h.detach().index_select if h.is_cuda else lambda _, ids: gather_rows(h.detach(), ids)
        return tuple(take(0, p.flatten()).view(*p.shape, h.shape[1]) for p in positions)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:  # type: ignore[override]
        out = None
        for positions, grad in zip(ctx.positions, grads, strict=True):
            if grad is not None and ctx.needs_input_grad[0]:
                dtype = compute_dtype(grad)  # half precision would lose the addends of a row that occurs often
                out = grad.new_zeros(ctx.shape, dtype=dtype) if out is None else out
                add_rows(out, positions.flatten(), grad.flatten(0, -2).to(dtype))
        return None if out is None else out.to(ctx.dtype), *[None] * len(ctx.positions)
