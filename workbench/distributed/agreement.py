"""Ranks agree before they work: configuration, code and data are compared by one exchange of digests."""

import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from workbench.distributed.group import Group, get_world_size

_SHOWN = 40  # characters of a value in a message
_DIGITS = 12  # of a digest in a message
_MOST = 4  # differences in a message


def check_ranks_agree(values: Mapping[str, Any], group: Group = None) -> None:
    """Refuse ranks that were given different things; collective, and the error is the same on all ranks.

        wb.check_ranks_agree({"data": data.fingerprint, "owner": owner, "parameters": model.state_dict()})

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
        config: argument of the function.
        name: of the function.
        function: that the ranks run.
        group: the ranks; None for all.

    Raises:
        ValueError: they differ; the message names what, the files too, and on which ranks.
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
        data = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
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
