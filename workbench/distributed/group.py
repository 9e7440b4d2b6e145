"""The ranks of a process group; a process without one is the only rank."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

Group = dist.ProcessGroup | None
"""A process group; None: all ranks, or this process alone if it has joined no group."""


def rank_of(group: Group) -> int:
    """Number of this process in a group."""
    return dist.get_rank(group) if dist.is_initialized() else 0


def size_of(group: Group) -> int:
    """Number of ranks of a group."""
    return dist.get_world_size(group) if dist.is_initialized() else 1


def gather_numbers(value: float, group: Group = None) -> list[float]:
    """Gather a number of each rank; collective.

    Args:
        value: of this rank.
        group: the ranks.

    Returns:
        Those of all ranks, in order of rank.
    """
    if size_of(group) == 1:
        return [float(value)]
    own = torch.tensor([value], dtype=torch.float64, device="cuda" if dist.get_backend(group) == "nccl" else "cpu")
    found = [torch.empty_like(own) for _ in range(size_of(group))]
    dist.all_gather(found, own, group=group)
    return torch.cat(found).tolist()


def all_to_all(rows: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int], group: Group) -> Tensor:
    """Send rows to every rank and receive theirs; collective, and not differentiable.

    Rows travel as bytes, because backends do not support the same dtypes.

    Args:
        rows: [Σ send_counts, …] of any dtype, grouped by receiver.
        send_counts: number of rows for each rank.
        receive_counts: number of rows from each rank.
        group: the ranks.

    Returns:
        [Σ receive_counts, …], grouped by sender.
    """
    received = rows.new_empty((sum(receive_counts), *rows.shape[1:]))
    row_bytes = row_nbytes(rows)
    if size_of(group) == 1:
        return received.copy_(rows)
    if row_bytes:
        sizes = [[count * row_bytes for count in counts] for counts in (receive_counts, send_counts)]
        dist.all_to_all_single(_as_bytes(received), _as_bytes(rows), *sizes, group=group)
    return received


def row_nbytes(rows: Tensor) -> int:
    """Bytes of one row, of a tensor that may have none."""
    return rows.new_empty((1, *rows.shape[1:]), device="meta").nbytes


def _as_bytes(rows: Tensor) -> Tensor:
    return rows.detach().contiguous().flatten().view(torch.uint8)
