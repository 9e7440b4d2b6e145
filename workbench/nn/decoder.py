"""`Decoder`: scores of (head, relation, tail) from rows of nodes, of positive pairs and against many candidates."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from workbench.core.errors import check_at_least, check_choice, check_type, find_out_of_range
from workbench.nn.pair_rows import pair_rows

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
        ids = self._checked_relations(relation)
        (rows,) = pair_rows(self.relations, ids + self.num_relations if inverse else ids)
        return self.query(kept, rows, "dst" if inverse else end)

    def _checked_relations(self, relation: Tensor | None) -> Tensor:
        remedy = "pass relation= to edge_batches, or zeros for edges of one kind (num_relations=1)"
        check_type("relation", relation, Tensor, remedy)
        assert isinstance(relation, Tensor)
        if relation.dtype.is_floating_point or relation.dtype == torch.bool:
            raise TypeError(f"relation is {relation.dtype}; pass integers")
        bad = find_out_of_range(relation, 0, self.num_relations) if relation.device.type == "cpu" else None
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
        return grad @ rows, grad.transpose(-1, -2) @ query
