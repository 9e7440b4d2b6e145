"""Ranks agree before they work: configuration, code and data are compared by one exchange of digests."""

import hashlib
import inspect
import json
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
    if get_world_size(group) == 1:
        return
    found: list[Any] = [None] * get_world_size(group)
    dist.all_gather_object(found, dict(_described("", values)), group=group)
    names = dict.fromkeys(name for described in found for name in described)
    if differences := [text for name in names if (text := _difference(name, found))]:
        raise ValueError(
            f"ranks differ in {'; '.join(differences)}; start all ranks with the same configuration, data and code"
        )


def versions(function: Callable[..., Any]) -> dict[str, str]:
    """What ranks must run alike: this library, torch, and the file of a function.

    Args:
        function: that the ranks run.
    """
    file = inspect.getsourcefile(inspect.unwrap(function))
    own = {} if file is None else {"function": _digest(Path(file).read_bytes())}
    return {"library": _library(), "torch": torch.__version__, **own}


@cache
def _library() -> str:
    folder = Path(__file__).parent.parent
    return _digest(*(file.read_bytes() for file in sorted(folder.rglob("*.py"))))


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
