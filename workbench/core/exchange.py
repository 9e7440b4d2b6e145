"""`Exchange`: the rows that processes send each other before a layer of a cooperative batch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import INT64_MAX, check_at_least, check_ids, check_tensors, check_type, check_vector
from workbench.core.storage import move_all


@dataclass(frozen=True, eq=False, repr=False)
class Exchange:
    """Which rows a process sends and receives before one layer of a cooperative batch.

    Args:
        send_index: int64 [Σ send_counts], local rows to send, by receiver.
        send_counts: rows for each process.
        receive_counts: rows from each process; their sum is the size of the halo.
        halo_ids: int64 [Σ receive_counts], raw-graph ids of the rows received, by sender.

    Raises:
        TypeError: an index of another dtype.
        ValueError: counts that are negative or do not add up.
    """

    send_index: Tensor
    send_counts: tuple[int, ...]
    receive_counts: tuple[int, ...]
    halo_ids: Tensor

    def __post_init__(self) -> None:
        check_tensors(send_index=self.send_index, halo_ids=self.halo_ids)
        for name in ("send_counts", "receive_counts"):
            check_type(name, getattr(self, name), Sequence, "pass a tuple of whole numbers, one per process")
            for count in getattr(self, name):
                check_at_least(f"a number of {name}", count, 0)
        check_vector("send_index", self.send_index, sum(self.send_counts), (torch.int64,))
        check_vector("halo_ids", self.halo_ids, sum(self.receive_counts), (torch.int64,))
        if len(self.send_counts) != len(self.receive_counts):
            raise ValueError(
                f"{len(self.send_counts)} send counts for {len(self.receive_counts)} receive counts; "
                "there is one of each per process"
            )

    def validate(self, num_owned: int) -> "Exchange":
        """Read all of it and return it.

        Args:
            num_owned: rows that this process owns where the exchange takes place.

        Raises:
            IndexError: a row to send that is not owned, or a negative node id.
        """
        check_ids("send_index", self.send_index, num_owned)
        check_ids("halo_ids", self.halo_ids, INT64_MAX)
        return self

    def to(self, device: Any, *, non_blocking: bool = False) -> "Exchange":
        """The exchange on another device."""
        return replace(self, **move_all(self._tensors(), device, non_blocking=non_blocking))

    def _tensors(self) -> dict[str, Tensor | None]:
        return {"send_index": self.send_index, "halo_ids": self.halo_ids}

    def __repr__(self) -> str:
        return f"Exchange(send {list(self.send_counts)}, receive {list(self.receive_counts)} rows by process)"
