"""The ranks of a process group; a process without one is the only rank."""

import hashlib
import inspect
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from workbench.core.machine import Traffic
from workbench.distributed.progress import in_phase
from workbench.kernels.buffers import byte_view

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
        out: contiguous [Σ receive_counts, …] to receive into; None allocates it.

    Returns:
        [Σ receive_counts, …], grouped by sender.
    """
    received, _ = _all_to_all(rows, send_counts, receive_counts, group, out, async_op=False)
    return received


def start_all_to_all(
    rows: Tensor,
    send_counts: Sequence[int],
    receive_counts: Sequence[int],
    group: Group = None,
    *,
    out: Tensor | None = None,
) -> tuple[Tensor, Callable[[], Any]]:
    """Begin `all_to_all`, with the same arguments; every rank finishes its exchanges in the order in which it began.

    Returns:
        What `all_to_all` returns, not to be read yet, and a function that waits until it can be.
    """
    received, work = _all_to_all(rows, send_counts, receive_counts, group, out, async_op=True)
    return received, (lambda: None) if work is None else work.wait


def _all_to_all(
    rows: Tensor,
    send_counts: Sequence[int],
    receive_counts: Sequence[int],
    group: Group,
    out: Tensor | None,
    *,
    async_op: bool,
) -> tuple[Tensor, Any]:
    received = rows.new_empty((sum(receive_counts), *rows.shape[1:])) if out is None else out
    row_bytes = math.prod(rows.shape[1:]) * rows.element_size()
    if get_world_size(group) == 1:
        return received.copy_(rows), None
    if not row_bytes:
        return received, None
    sizes = [[count * row_bytes for count in counts] for counts in (receive_counts, send_counts)]
    given = byte_view(received), byte_view(rows)
    return received, dist.all_to_all_single(*given, *sizes, group=group, async_op=async_op)


def exchange_ids(
    ids: Sequence[Tensor], group: Group = None, traffic: Traffic | None = None, *, phase: str = "ids"
) -> list[Tensor]:
    """Send ids to every rank and receive theirs, after their numbers; collective.

    Args:
        ids: int64 [any] for each rank.
        traffic: counts the ids received from other ranks, but not their numbers, which are 8 bytes per rank.

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


_SHOWN = 40  # characters of a value in a message

_DIGITS = 12  # of a digest in a message

_MOST = 4  # differences in a message


def check_ranks_agree(values: Mapping[str, Any], group: Group = None) -> None:
    """Refuse ranks that were given different things; collective, and the error is the same on all ranks.

        wb.distributed.check_ranks_agree({"data": data.fingerprint, "owner": owner, "parameters": model.state_dict()})

    Ranks that `workbench.run_ranks` or torchrun starts compare their configuration, code and torch before the function
    is called.

    Args:
        values: what must be equal, by name: JSON values, tensors, and mappings of them.
        group: the ranks; None for all.

    Raises:
        ValueError: it differs; the message names what, and on which ranks.
        TypeError: a value of another type.
    """
    if get_world_size(group) > 1:
        _refuse_differences(_gathered(values, group))


def check_start(config: Mapping[str, Any], name: str, function: Callable[..., Any], group: Group = None) -> None:
    """Refuse ranks that would run a function differently; collective, and the error is the same on all ranks.

    Compared are the configuration, the function's name, torch, and all Python files of this library and of the
    function's package.

    Args:
        function: that the ranks run.
    """
    if get_world_size(group) == 1:
        return
    files = sources(function)
    given = {"config": config, "name": name, "torch": torch.__version__}
    found = _gathered({**given, "code": json.dumps(files)}, group)
    if len({one["code"] for one in found}) > 1:  # known to all ranks
        found = _gathered({**given, "code": files}, group)
    _refuse_differences(found)


def sources(function: Callable[..., Any]) -> dict[str, str]:
    """Digests of the files that ranks must have alike, by name: this library's, and those of a function's package.

    Args:
        function: that the ranks run; of a module that is in no package, its file alone counts.
    """
    found = dict(_package_files("workbench", (str(Path(__file__).parent.parent),)))
    package, file = (
        inspect.unwrap(function).__module__.partition(".")[0],
        inspect.getsourcefile(inspect.unwrap(function)),
    )
    if (folders := getattr(sys.modules.get(package), "__path__", None)) is not None:
        return found | _package_files(package, tuple(folders))
    return found if file is None else found | {Path(file).name: _digest(Path(file).read_bytes())}


@cache
def _package_files(package: str, folders: tuple[str, ...]) -> dict[str, str]:
    return {
        f"{package}/{file.relative_to(folder).as_posix()}": _digest(file.read_bytes())
        for folder in folders
        for file in sorted(Path(folder).rglob("*.py"))
    }


def _gathered(values: Mapping[str, Any], group: Group) -> list[dict[str, str]]:
    """Short texts of the values of each rank, by name."""
    found: list[Any] = [None] * get_world_size(group)
    dist.all_gather_object(found, dict(_described("", values)), group=group)
    return found


def _refuse_differences(found: Sequence[Mapping[str, str]]) -> None:
    names = dict.fromkeys(name for described in found for name in described)
    if not (differences := [text for name in names if (text := _difference(name, found))]):
        return
    more = f"; and {len(differences) - _MOST} more" if len(differences) > _MOST else ""
    raise ValueError(
        f"ranks differ in {'; '.join(differences[:_MOST])}{more}; start all ranks with the same configuration, data "
        "and code"
    )


def _described(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A short text of each value, which differs if the value does."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _described(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", _text(value)


def _text(value: Any) -> str:
    if isinstance(value, Tensor):
        data = byte_view(value.detach().cpu()).numpy()
        return f"{tuple(value.shape)} {value.dtype} {_digest(data.data)}"
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({_digest(text.encode())})"


def _difference(name: str, found: Sequence[Mapping[str, str]]) -> str:
    """The values of a name and the ranks that have each; "" if they agree."""
    ranks: dict[str, list[str]] = {}
    for rank, values in enumerate(found):
        ranks.setdefault(values.get(name, "nothing"), []).append(str(rank))
    if len(ranks) == 1:
        return ""
    each = [f"{value} on rank{'s' * (len(those) > 1)} {', '.join(those)}" for value, those in ranks.items()]
    return f"{name} ({'; '.join(each)})"


def _digest(*data: Any) -> str:
    digest = hashlib.sha256()
    for one in data:
        digest.update(one)
    return digest.hexdigest()[:_DIGITS]
