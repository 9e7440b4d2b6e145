"""Relational GCN (Schlichtkrull et al.: "Modeling Relational Data with Graph Convolutional Networks", ESWC 2018)."""

import torch
from torch import Tensor, nn

from workbench.core.block import Block
from workbench.core.errors import check_at_least, check_choice, find_out_of_range
from workbench.kernels.block_diagonal_sum import BLOCK_DIAGONAL
from workbench.kernels.jit import runs_eagerly
from workbench.kernels.segment import check_rows, compute_dtype, inverse_in_degrees
from workbench.kernels.typed_sum import BASIS, inverse_relation_degrees, typed_sum_with_self
from workbench.nn.linear_with_self import Exchanger, linear_with_self

RGCN_REGULARIZERS = ("basis", "bdd")
RGCN_NORMS = ("relation", "right", "none")


class RGCNLayer(nn.Module):
    """R-GCN layer: `Σ_r Σ_{j ∈ N_r} e / c · W_r · h_j + W_0 · h_dst + b`; an edge's type is its relation r.

    The regularizers share parameters between relations:
    - basis (equation 3): W_r = Σ_b a_rb · V_b. Rows are summed per basis, so no matrix per relation and no message per
      edge is stored.
    - bdd (equation 4): W_r = diag(Q_r1, …, Q_rB), block-diagonal.

    The normalizations:
    - relation (default): c = |N_r|, the in-edges of the same relation: a mean per relation.
    - right: c = the in-degree, which the paper uses for link prediction.
    - none: c = 1, as in DGL without its `norm` argument.
    Both degrees are those of the block's rows, which a split copies completely, so micro-batches are exact.

    Parameters have the names and shapes of DGL's RelGraphConv: `linear_r.W`, `linear_r.coeff`, `loop_weight`, `h_bias`.

    Args:
        in_dim: input channels.
        out_dim: output channels.
        num_relations: number of relations; edge types are below it.
        regularizer: "basis" or "bdd".
        num_bases: number of bases, or of diagonal blocks, which divides both dimensions; None: `num_relations`.
        norm: "relation", "right" or "none".
        self_loop: add W_0 · h_dst.
        bias: add a learned bias b.

    Raises:
        ValueError: an unknown regularizer or norm, or blocks that do not divide the dimensions.
    """

    is_linear = False
    exchanges_itself = True

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        num_relations: int,
        regularizer: str = "basis",
        num_bases: int | None = None,
        norm: str = "relation",
        self_loop: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_choice("regularizer", regularizer, RGCN_REGULARIZERS)
        check_choice("norm", norm, RGCN_NORMS)
        check_at_least("num_relations", num_relations, 1)
        bases = num_relations if num_bases is None else num_bases
        check_at_least("num_bases", bases, 1)
        if regularizer == "bdd" and (in_dim % bases or out_dim % bases):
            raise ValueError(
                f"num_bases is {bases}, which does not divide the dimensions {in_dim} and {out_dim} into equal blocks; "
                "choose a common divisor, or regularizer='basis'"
            )
        self.in_dim, self.out_dim, self.num_relations = in_dim, out_dim, num_relations
        self.regularizer, self.num_bases, self.norm = regularizer, bases, norm
        self.linear_r = nn.ParameterDict(_relation_weights(in_dim, out_dim, num_relations, regularizer, bases))
        self.loop_weight = nn.Parameter(torch.empty(in_dim, out_dim)) if self_loop else None
        self.h_bias = nn.Parameter(torch.zeros(out_dim)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize as DGL does: W uniform by its number of inputs, the rest Glorot uniform, bias zero."""
        gain = nn.init.calculate_gain("relu")
        bound = (self.in_dim if self.regularizer == "basis" else self.in_dim // self.num_bases) ** -0.5
        nn.init.uniform_(self.linear_r["W"], -bound, bound)
        for weight in (self.linear_r.get("coeff"), self.loop_weight):
            if weight is not None:
                nn.init.xavier_uniform_(weight, gain=gain)
        if self.h_bias is not None:
            nn.init.zeros_(self.h_bias)

    def forward(self, block: Block, h: Tensor, exchange: Exchanger | None = None) -> Tensor:
        """Compute the layer; a basis multiplies by V first if that makes the summed rows narrower.

        Args:
            block: one layer of a batch, with edge types.
            h: floating [num_src, in_dim]; with `exchange` only the owned sources.
            exchange: appends the rows of the halo to `h`; meanwhile the destinations' own rows are multiplied.

        Raises:
            ValueError: the block has no edge types or, on the CPU, one that is not below `num_relations`.
        """
        if exchange is not None:
            return self._exchanged(block, h, exchange)
        out, h_dst = self._sum(block, h)
        if self.loop_weight is not None:
            out = out + h_dst @ self.loop_weight
        return out if self.h_bias is None else out + self.h_bias

    def _exchanged(self, block: Block, h: Tensor, exchange: Exchanger) -> Tensor:
        if self.loop_weight is None or not hasattr(exchange, "start"):
            return RGCNLayer.forward(self, block, exchange(h))
        h_dst, finish = exchange.start(h, block.num_dst)  # pyright: ignore[reportFunctionMemberAccess]
        own, rows = h_dst @ self.loop_weight, finish()
        out = self._sum(block, rows)[0] + own
        return out if self.h_bias is None else out + self.h_bias

    def _sum(self, block: Block, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum over relations, and the destinations' rows."""
        check_rows(h, block)
        types = _relations(block, self.num_relations)
        sum_relations = self._sum_bases if self.regularizer == "basis" else self._sum_blocks
        return sum_relations(block, types, h, self._edge_factors(block, types, h))

    def _sum_bases(self, block: Block, types: Tensor, h: Tensor, factors: Tensor | None) -> tuple[Tensor, Tensor]:
        bases, coefficients = self.linear_r["W"], self.linear_r["coeff"]
        if self.out_dim < self.in_dim:
            projected, h_dst = linear_with_self(h, block.num_dst, bases.transpose(1, 2).flatten(0, 1))
            parts = projected.view(-1, self.num_bases, self.out_dim)
            return typed_sum_with_self(BASIS, block, types, parts, coefficients, factors)[0], h_dst
        sums, h_dst = typed_sum_with_self(BASIS, block, types, h, coefficients, factors)
        return sums.flatten(1) @ bases.flatten(0, 1), h_dst

    def _sum_blocks(self, block: Block, types: Tensor, h: Tensor, factors: Tensor | None) -> tuple[Tensor, Tensor]:
        width = self.in_dim // self.num_bases
        matrices = self.linear_r["W"].view(self.num_relations, self.num_bases, width, -1)
        parts = h.view(-1, self.num_bases, width)
        out, h_dst = typed_sum_with_self(BLOCK_DIAGONAL, block, types, parts, matrices, factors)
        return out.flatten(1), h_dst.flatten(1)

    def _edge_factors(self, block: Block, types: Tensor, h: Tensor) -> Tensor | None:
        """Return e / c per edge, [num_edges]; None for ones."""
        weight, dtype = block.edge_weight, compute_dtype(h)
        if self.norm == "none":
            return weight
        if self.norm == "relation":
            inverse = inverse_relation_degrees(block, types, self.num_relations, dtype)
        else:
            inverse = inverse_in_degrees(block, dtype).index_select(0, block.destinations)
        return inverse if weight is None else inverse * weight

    def extra_repr(self) -> str:
        return (
            f"{self.in_dim}, {self.out_dim}, num_relations={self.num_relations}, regularizer={self.regularizer!r}, "
            f"num_bases={self.num_bases}, norm={self.norm!r}"
        )


def _relation_weights(in_dim: int, out_dim: int, relations: int, regularizer: str, bases: int) -> dict[str, Tensor]:
    if regularizer == "bdd":
        return {"W": torch.empty(relations, in_dim * out_dim // bases)}
    return {"W": torch.empty(bases, in_dim, out_dim), "coeff": torch.empty(relations, bases)}


@runs_eagerly
def _relations(block: Block, num_relations: int) -> Tensor:
    """Return the edge types, in range; on the CPU alone, since on other devices the check would wait for them."""
    types = block.edge_type
    if types is None:
        raise ValueError("the block has no edge types; sample a graph that has them: Graph.from_edges(edge_type=…)")
    bad = find_out_of_range(types, 0, num_relations) if types.device.type == "cpu" else None
    if bad is not None:
        raise ValueError(
            f"edge_type contains {bad}, but the layer has {num_relations} relations; build it with one more relation "
            "than the largest edge type (reverse edges have types of their own)"
        )
    return types
