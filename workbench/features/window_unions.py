"""`WindowUnions`: how many distinct rows any window of consecutive batches reads, from one pass over their ids."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from torch import Tensor


@dataclass(frozen=True, eq=False)
class WindowUnions:
    """Distinct ids of every window of consecutive batches.

    An id that batch i reads counts in the window [first, last) if no batch of first, …, i − 1 has read it, that is if
    the last batch before i that did precedes `first`. A histogram of these last batches answers all windows.

    Args:
        sums: int64 [num_batches + 1, num_batches + 1]; `sums[i, first]` is the number of reads by the batches before i
            of ids whose last reader before precedes `first`.
    """

    sums: np.ndarray

    @staticmethod
    def of(batches: Iterable[Tensor]) -> "WindowUnions":
        """Count the ids of batches.

        Args:
            batches: int64 [any] per batch, each id once per batch, non-negative.
        """
        ids = [one.cpu().numpy() for one in batches]
        last_reader = np.zeros(max((int(one.max()) + 1 for one in ids if len(one)), default=0), np.int64)  # 0: none
        counts = np.zeros((len(ids) + 1, len(ids) + 1), np.int64)
        for number, one in enumerate(ids, 1):
            counts[number] = np.bincount(last_reader[one], minlength=len(ids) + 1)
            last_reader[one] = number
        return WindowUnions(counts.cumsum(0).cumsum(1))

    def __len__(self) -> int:
        """Number of batches."""
        return len(self.sums) - 1

    def counts(self, size: int, *, num_batches: int | None = None) -> np.ndarray:
        """Return the distinct ids of each window of `size` batches, the last of which may have fewer.

        Args:
            size: batches per window, at least 1.
            num_batches: batches in all, of which those after the last one read nothing; None: those there are.

        Returns:
            int64 [windows].
        """
        first = np.arange(0, len(self) if num_batches is None else num_batches, size)
        last = np.minimum(first + size, len(self))
        first = np.minimum(first, len(self))
        return self.sums[last, first] - self.sums[first, first]
