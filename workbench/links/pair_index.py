"""A multimap from pairs of keys to values: a CSR whose rows are the pairs that occur."""

from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.kernels.csr import offsets


@dataclass(frozen=True, eq=False)
class PairIndex:
    """The values of each pair (first, second), with vectorised lookup on any device.

    Args:
        keys: int64 [num_pairs], ascending: first · num_second + second.
        indptr: int64 [num_pairs + 1], offsets of each pair's values.
        values: int64 [any], ascending and distinct within a pair.
        num_second: exclusive upper bound of `second`.
    """

    keys: Tensor
    indptr: Tensor
    values: Tensor
    num_second: int

    @classmethod
    def build(cls, first: Tensor, second: Tensor, value: Tensor, num_second: int) -> "PairIndex":
        """Group values by pair and drop duplicates.

        Args:
            first: int64 [n], first key of each value.
            second: int64 [n], second key of each value.
            value: int64 [n].
            num_second: exclusive upper bound of `second`.

        Raises:
            OverflowError: if the possible pairs can't be numbered in 63 bits.
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
        """Look up the values of many pairs.

        Args:
            first: int64 [num_queries].
            second: int64 [num_queries].

        Returns:
            The index of the query and the value of each match, int64, ordered by query, then by value.
        """
        keys = first * self.num_second + second
        slot = torch.searchsorted(self.keys, keys)
        row = slot.clamp(max=len(self.keys) - 1) if len(self.keys) else slot
        known = self.keys[row] == keys if len(self.keys) else torch.zeros_like(keys, dtype=torch.bool)
        query, row = known.nonzero().squeeze(1), row[known]
        counts = self.indptr[row + 1] - self.indptr[row]
        starts = torch.repeat_interleave(self.indptr[row] - offsets(counts)[:-1], counts)
        positions = starts + torch.arange(len(starts), device=starts.device)
        return torch.repeat_interleave(query, counts), self.values[positions]
