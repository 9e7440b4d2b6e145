"""`LearntInit`: the values that learnt rows begin with."""

from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_seed
from workbench.features.adagrad import state_dtype


@dataclass(frozen=True)
class LearntInit:
    """Initial values of learnt rows: normal, a draw per partition; the optimizer's state begins at 0.

    Rows in half precision have a state in float32, so that a row of 2 bytes per value needs 6.

    Args:
        dim: width of a row.
        std: standard deviation.
        seed: of the draws, a 64-bit integer.
        dtype: floating-point dtype of the rows.
    """

    dim: int
    std: float = 1e-3
    seed: int = 0
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        check_at_least("dim", self.dim, 1)
        check_seed(self.seed)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return (self.dim,)

    def values(self, partition: int, count: int) -> Tensor:
        """Values of a partition, [count, dim]."""
        generator = torch.Generator().manual_seed((self.seed * 0x9E3779B1 + partition) % 2**63)
        drawn = torch.randn(count, self.dim, generator=generator, dtype=state_dtype(self.dtype)) * self.std
        return drawn.to(self.dtype)
