"""Decoders of link prediction, each by its equation: DistMult, ComplEx, TransE and the dot product."""

import torch
from torch import Tensor

from workbench.kernels.segment import compute_dtype
from workbench.nn.decoder import Decoder


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
