"""The ranks of a process group; a process without one is the only rank."""

import torch
import torch.distributed as dist

Group = dist.ProcessGroup | None
"""A process group; None: all ranks, or this process alone if it has joined no group."""


def get_rank(group: Group = None) -> int:
    """Number of this process in a group; 0 if it is the only rank.

    Args:
        group: the ranks; None for all.
    """
    return dist.get_rank(group) if dist.is_initialized() else 0


def get_world_size(group: Group = None) -> int:
    """Number of ranks of a group; 1 for a process that has joined none.

    Args:
        group: the ranks; None for all.
    """
    return dist.get_world_size(group) if dist.is_initialized() else 1


def gather_numbers(value: float, group: Group = None) -> list[float]:
    """Gather a number of each rank; collective.

    Args:
        value: of this rank.
        group: the ranks.

    Returns:
        Those of all ranks, in order of rank.
    """
    if get_world_size(group) == 1:
        return [float(value)]
    own = torch.tensor([value], dtype=torch.float64, device="cuda" if dist.get_backend(group) == "nccl" else "cpu")
    found = [torch.empty_like(own) for _ in range(get_world_size(group))]
    dist.all_gather(found, own, group=group)
    return torch.cat(found).tolist()
