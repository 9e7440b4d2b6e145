"""Conversion of a point to MLflow's fields: flat parameter names and a short run name."""

import json
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from workbench.error_text import printable
from workbench.tracking.record import Point, Row

NAME_LENGTH, VALUE_LENGTH = 250, 6000
"""MLflow's maximum lengths of names and of parameter values, in characters."""

SEPARATOR = " · "
"""Between the parts of a run's name."""

_RUN_NAME_LENGTH = 160
_NOT_IN_NAMES = re.compile(r"[^\w\-./ :]")


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested keys, joined by "."; the key "name" of a nested mapping is omitted.

    >>> flatten({"dataset": {"name": "cora", "features": {"given": 3}}, "fanouts": [10, 25]})
    {'dataset': 'cora', 'dataset.features.given': 3, 'fanouts': [10, 25]}
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= {key if name == "name" else f"{key}.{name}": inner for name, inner in flatten(value).items()}
        else:
            flat[str(key)] = value
    return flat


def cell(value: Any) -> Any:
    """Convert a value for a table: lists become JSON, other values are unchanged."""
    return text(value) if isinstance(value, list | tuple) else value


def text(value: Any) -> str:
    """Convert a value for a parameter: strings are unchanged, other values become JSON.

    >>> text("reg"), text([10, 25]), text(None), text(0.5)
    ('reg', '[10, 25]', 'null', '0.5')
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def shorten(value: str, length: int = VALUE_LENGTH) -> str:
    """Truncate a string to at most `length` characters."""
    return value if len(value) <= length else value[: length - 1] + "…"


def safe_name(name: str) -> str:
    """Convert a string to a valid name of a parameter, metric or tag in MLflow.

    >>> safe_name("inputs/full (%)"), safe_name("../a//b")
    ('inputs/full ___', '_/a/b')
    """
    normal = posixpath.normpath(_NOT_IN_NAMES.sub("_", name)).lstrip("/")
    normal = "/".join("_" if part == ".." else part for part in normal.split("/"))
    return normal[:NAME_LENGTH].rstrip("/") if normal not in ("", ".") else "_"


def parameters(config: Mapping[str, Any]) -> dict[str, str]:
    """Convert a configuration to MLflow's parameters."""
    return {safe_name(key): shorten(text(value)) for key, value in flatten(config).items()}


def plain_rows(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Copy rows as JSON values: scalars of NumPy and torch become Python's.

    Args:
        rows: mappings from column to value.

    Raises:
        TypeError: if a value is not a number, string, bool or None.
    """
    return [{str(name): _plain(str(name), value) for name, value in row.items()} for row in rows]


def milliseconds(seconds: float) -> int:
    """Convert seconds to MLflow's milliseconds, at least 1, because 0 would mean now."""
    return max(1, round(seconds * 1000))


def batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    """Yield slices of a list with at most `size` items."""
    return (items[first : first + size] for first in range(0, len(items), size))


def run_name(point: Point) -> str:
    """Build the name of a run: figure, size unless it is smoke, and what tells the point from others of its sweep.

    >>> run_name(Point("betty/fig11", "real", "k", {"method": "reg"}, label="reg · parts=8"))
    'fig11 real · reg · parts=8'
    """
    figure = point.sweep.split("/")[-1] + ("" if point.size == "smoke" else f" {point.size}")
    return shorten(f"{figure}{SEPARATOR}{point.label or label(point.config)}", _RUN_NAME_LENGTH)


def label(config: Mapping[str, Any], names: Collection[str] | None = None) -> str:
    """Describe a configuration in a few words: names and lists as they are, numbers with their key.

    Args:
        config: nested configuration.
        names: flat keys to show; None: those with a number or a text.

    >>> label({"method": "reg", "num_parts": 8, "fanouts": [10, 25], "cached": False})
    'reg · parts=8 · cached=false'
    >>> label({"method": "reg", "num_parts": 8, "fanouts": [10, 25]}, ["num_parts", "fanouts"])
    'parts=8 · 10,25'
    """
    flat = flatten(config)
    chosen = [name for name in flat if (names is None and not isinstance(flat[name], list)) or name in (names or ())]
    return SEPARATOR.join(_described(name, flat[name]) for name in chosen if flat[name] not in (None, ""))


def _described(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, int) for each in value):
        return ",".join(map(str, value))
    return f"{name.rpartition('.')[2].removeprefix('num_')}={text(value)}"


def _plain(name: str, value: Any) -> Any:
    if getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, str):
        return printable(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    raise TypeError(
        f"column {name!r} contains a {type(value).__name__}; rows may contain numbers, strings, bools and None"
    )
