"""`AccessTrace`: which rows a run read, in order, as simulations of caches and placements need it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import INT64_MAX, check_ends, check_ids, check_tensors, check_vector
from workbench.kernels.csr import first_decrease


@dataclass(frozen=True, eq=False, repr=False)
class AccessTrace:
    """The ids of a sequence of reads.

    Args:
        ids: int64 [num_accesses], the ids of all reads, one read after the other.
        offsets: int64 [num_reads + 1]; read i has the ids `ids[offsets[i]:offsets[i + 1]]`.

    Raises:
        TypeError: a tensor of another dtype.
        ValueError: offsets that do not run from 0 to the number of ids, or decrease.
    """

    ids: Tensor
    offsets: Tensor

    def __post_init__(self) -> None:
        check_tensors(ids=self.ids, offsets=self.offsets)
        check_vector("ids", self.ids, None, (torch.int64,))
        check_vector("offsets", self.offsets, None, (torch.int64,))
        if not len(self.offsets):
            raise ValueError("offsets is empty; a trace without reads has offsets [0]")
        check_ends(self.offsets, len(self.ids), name="offsets", what="ids")
        if (read := first_decrease(self.offsets)) is not None:
            raise ValueError(f"offsets must be non-decreasing, but they decrease after read {read}; see AccessTrace.of")

    @staticmethod
    def of(reads: Iterable[Tensor]) -> "AccessTrace":
        """Build a trace from the ids of each read, such as the `node_ids` of batches.

        Args:
            reads: int64 or int32 [any] per read, non-negative.

        Raises:
            TypeError: ids of another dtype.
            IndexError: a negative id.
        """
        if isinstance(reads, Tensor) and reads.dim() < 2:
            raise TypeError("reads is one vector of ids; pass a list with the ids of each read, [ids] for a single one")
        vectors = [check_ids("ids", _ids(ids), INT64_MAX).cpu() for ids in reads]
        sizes = torch.tensor([0, *(len(ids) for ids in vectors)], dtype=torch.int64)
        return AccessTrace(torch.cat([torch.empty(0, dtype=torch.int64), *vectors]), sizes.cumsum(0))

    def __len__(self) -> int:
        """Number of reads."""
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Tensor]:
        """The ids of each read."""
        return iter(self.ids.split(self.offsets.diff().tolist()) if len(self) else ())

    def __repr__(self) -> str:
        return f"AccessTrace({len(self):,} reads of {len(self.ids):,} rows)"


def _ids(read: object) -> Any:
    """Refuse batches, from which the ids are to be taken."""
    if isinstance(read, tuple) or hasattr(read, "node_ids"):
        raise TypeError(f"a read is a {type(read).__name__}; pass the ids of each: [mb.node_ids for _, mb in batches]")
    return read
