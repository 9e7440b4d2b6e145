"""For every pair of keys its different values: a CSR whose rows are the pairs that occur."""

from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.kernels.csr import offsets


@dataclass(frozen=True, eq=False)
class PairIndex:
    """Values by (first, second), looked up for many pairs at once on any device.

    Args:
        keys: int64 [pairs], ascending: first · num_second + second.
        indptr: int64 [pairs + 1].
        values: int64 [any], ascending and different within a pair.
        num_second: `second` lies in [0, num_second).
    """

    keys: Tensor
    indptr: Tensor
    values: Tensor
    num_second: int

    @classmethod
    def build(cls, first: Tensor, second: Tensor, value: Tensor, num_second: int) -> "PairIndex":
        """Group int64 [n] values by their pairs; what stands twice counts once.

        Raises:
            OverflowError: more possible pairs than 63 bits number.
        """
        if first.numel() and (int(first.max()) + 1) * num_second >= 2**63:
            raise OverflowError(
                f"{int(first.max()) + 1} × {num_second} pairs can't be numbered in 63 bits; number both without gaps"
            )
        key = first * num_second + second
        order = torch.argsort(value, stable=True)
        order = order[torch.argsort(key[order], stable=True)]
        key, value = key[order], value[order]
        is_new = torch.ones_like(key, dtype=torch.bool)
        is_new[1:] = (key[1:] != key[:-1]) | (value[1:] != value[:-1])
        keys, counts = torch.unique_consecutive(key[is_new], return_counts=True)
        return cls(keys, offsets(counts), value[is_new], num_second)

    def find(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Query and value, int64, of all values of the queried pairs, query by query.

        Args:
            first: int64 [queries].
            second: int64 [queries].
        """
        wanted = first * self.num_second + second
        slot = torch.searchsorted(self.keys, wanted)
        row = slot.clamp(max=len(self.keys) - 1) if len(self.keys) else slot
        known = self.keys[row] == wanted if len(self.keys) else torch.zeros_like(wanted, dtype=torch.bool)
        query, row = known.nonzero().squeeze(1), row[known]
        counts = self.indptr[row + 1] - self.indptr[row]
        starts = torch.repeat_interleave(self.indptr[row] - offsets(counts)[:-1], counts)
        positions = starts + torch.arange(len(starts), device=starts.device)
        return torch.repeat_interleave(query, counts), self.values[positions]
