"""All-to-all of rows and of ids between the ranks of a group."""

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from workbench.core.traffic import Traffic
from workbench.distributed.group import Group, get_rank, get_world_size
from workbench.distributed.progress import in_phase


def all_to_all(
    rows: Tensor,
    send_counts: Sequence[int],
    receive_counts: Sequence[int],
    group: Group = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Send rows to every rank and receive theirs; collective, and not differentiable.

    Rows travel as bytes, because backends do not support the same dtypes.

    Args:
        rows: [Σ send_counts, …] of any dtype, grouped by receiver.
        send_counts: number of rows for each rank.
        receive_counts: number of rows from each rank.
        group: the ranks; None for all.
        out: contiguous [Σ receive_counts, …] to receive into; None allocates it.

    Returns:
        [Σ receive_counts, …], grouped by sender.
    """
    received = rows.new_empty((sum(receive_counts), *rows.shape[1:])) if out is None else out
    row_bytes = math.prod(rows.shape[1:]) * rows.element_size()
    if get_world_size(group) == 1:
        return received.copy_(rows)
    if row_bytes:
        sizes = [[count * row_bytes for count in counts] for counts in (receive_counts, send_counts)]
        dist.all_to_all_single(_as_bytes(received), _as_bytes(rows), *sizes, group=group)
    return received


def exchange_ids(
    ids: Sequence[Tensor], group: Group = None, traffic: Traffic | None = None, *, phase: str = "ids"
) -> list[Tensor]:
    """Send ids to every rank and receive theirs, after their numbers; collective.

    Args:
        ids: int64 [any] for each rank.
        group: the ranks; None for all.
        traffic: counts the ids received from other ranks, but not their numbers, which are 8 bytes per rank.
        phase: name of the phase, for errors.

    Returns:
        int64 [any] from each rank.
    """
    with in_phase(phase):
        sizes, ones = torch.tensor([len(one) for one in ids]), [1] * len(ids)
        counts = all_to_all(sizes.to(ids[0].device), ones, ones, group).tolist()
        received = list(all_to_all(torch.cat([*ids]), sizes.tolist(), counts, group).split(counts))
    if traffic is not None:
        foreign = sum(counts) - counts[get_rank(group)]
        traffic.add("rank", "ids", foreign, foreign * received[0].element_size())
    return received


def _as_bytes(rows: Tensor) -> Tensor:
    return rows.detach().contiguous().flatten().view(torch.uint8)
