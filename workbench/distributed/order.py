"""The order sent to a rank: a function by name and a JSON configuration, validated before any process starts."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.core.errors import type_name
from workbench.distributed.rank_main import find_function

_NOT_JSON = (float("inf"), float("-inf"))


@dataclass(frozen=True)
class Order:
    """The order to run a function, sent to a rank.

    Args:
        function: "module:function".
        config: its argument, JSON values.
        environment: of the rendezvous.
        backend: of `torch.distributed`.
        timeout_seconds: of the rendezvous and of each collective.
        package: name and path of the function's top-level package; None if its module is in no package.
    """

    function: str
    config: Mapping[str, Any]
    environment: Mapping[str, str]
    backend: str
    timeout_seconds: float
    package: tuple[str, list[str]] | None


def function_name(function: str | Callable[..., Any]) -> str:
    """The name by which ranks import a function, after importing it here.

    Args:
        function: "module:function", or a function of a module.
    """
    name = function if isinstance(function, str) else f"{function.__module__}:{function.__qualname__}"
    found = find_function(name)
    if not isinstance(function, str) and found is not function:
        raise ValueError(f"{name!r} is another function than the one that was passed; pass a function of a module")
    return name


def package_of(name: str) -> tuple[str, list[str]] | None:
    """Name and path of the package that "package.module:function" starts with; None if it is a module."""
    package = name.partition(":")[0].partition(".")[0]
    path = getattr(sys.modules[package], "__path__", None)
    return None if path is None else (package, [*path])


def check_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as ranks receive it: tuples become lists.

    Args:
        config: JSON values.
    """
    if not isinstance(config, Mapping):
        raise TypeError(f"config must be a mapping of JSON values, not a {type_name(config)}")
    _check_json("config", config)
    return json.loads(json.dumps(config, default=dict))


def _check_json(where: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}; keys of JSON are strings")
            _check_json(f"{where}[{key!r}]", inner)
    elif isinstance(value, list | tuple):
        for position, inner in enumerate(value):
            _check_json(f"{where}[{position}]", inner)
    elif not (value is None or isinstance(value, bool | int | float | str)) or value in _NOT_JSON or value != value:
        raise TypeError(
            f"{where} is {value!r}, which JSON does not have; ranks receive numbers, strings, bools, None, lists and "
            "mappings, such as config.model_dump(mode='json')"
        )
