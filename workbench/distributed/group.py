"""The ranks of a process group; a process without one is the only rank."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from workbench.core.traffic import Traffic

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


def all_reduce_gradients(model: nn.Module, group: Group = None, traffic: Traffic | None = None) -> None:
    """Replace every gradient by its sum over the ranks; collective.

    A parameter without a gradient on some ranks, whose part of the batch did not use it, counts as 0 there; one that no
    rank has a gradient of keeps none, as in one process.

    Args:
        model: the same on all ranks.
        group: the ranks; None for all.
        traffic: counts the values that are reduced as "parameters" of "rank"; their bytes include those of one flag per
            parameter, which says whether a rank has a gradient.
    """
    if get_world_size(group) == 1:
        return
    kinds: dict[tuple[torch.dtype, torch.device], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    for parameters in kinds.values():
        _reduce(parameters, group, traffic)


def _reduce(parameters: Sequence[nn.Parameter], group: Group, traffic: Traffic | None) -> None:
    flat = torch.cat([_flag(parameters), *[_values(parameter) for parameter in parameters]])
    if traffic is not None:
        traffic.add("rank", "parameters", len(flat) - len(parameters), flat.nbytes)
    dist.all_reduce(flat, group=group)
    num_ranks, *sums = flat.split([len(parameters), *[parameter.numel() for parameter in parameters]])
    for parameter, ranks, total in zip(parameters, num_ranks.tolist(), sums, strict=True):
        if ranks:
            parameter.grad = total.view_as(parameter).clone()


def _flag(parameters: Sequence[nn.Parameter]) -> Tensor:
    """1 for each parameter that has a gradient on this rank."""
    flags = [float(parameter.grad is not None) for parameter in parameters]
    return torch.tensor(flags, dtype=parameters[0].dtype, device=parameters[0].device)


def _values(parameter: nn.Parameter) -> Tensor:
    grad = parameter.grad
    return parameter.new_zeros(parameter.numel()) if grad is None else grad.detach().flatten()
