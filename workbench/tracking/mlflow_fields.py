"""Conversion of a point to MLflow's fields: flat parameter names, metrics and a short run name."""

import json
import math
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from workbench.tracking.record import Point, Row

NAME_LENGTH, VALUE_LENGTH = 250, 6000
"""MLflow's maximum lengths of names and of parameter values, in characters."""

_RUN_NAME_LENGTH = 80
_NOT_IN_NAMES = re.compile(r"[^\w\-./ :]")


class Value(NamedTuple):
    """One value of a metric.

    Args:
        name: name of the metric.
        value: may be NaN.
        step: position on the curve.
    """

    name: str
    value: float
    step: int


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


def encodable(value: str) -> str:
    """Replace characters that can't be encoded as UTF-8, which occur in file names, by question marks.

    >>> encodable("caf\\udce9")
    'caf?'
    """
    return value.encode(errors="replace").decode()


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


def metrics(rows: Sequence[Row]) -> list[Value]:
    """Convert the numbers in rows to metrics: curves over the column "step" or "epoch", otherwise over row positions.

    Infinities are dropped: MLflow would replace them by the largest float, which makes the curve unreadable.

    Args:
        rows: rows of JSON values.
    """
    axis = next((name for name in ("step", "epoch") if _is_axis(rows, name)), None)
    return [
        Value(safe_name(name), float(value), int(row[axis]) if axis else position)
        for position, row in enumerate(rows)
        for name, value in row.items()
        if name != axis and isinstance(value, int | float) and not math.isinf(value)
    ]


def milliseconds(seconds: float) -> int:
    """Convert seconds to MLflow's milliseconds, at least 1, because 0 would mean now."""
    return max(1, round(seconds * 1000))


def batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    """Yield slices of a list with at most `size` items."""
    return (items[first : first + size] for first in range(0, len(items), size))


def run_name(point: Point) -> str:
    """Build a short name of a run from the scalar values of its configuration.

    >>> run_name(Point("betty/fig11", "smoke", "k", {"method": "reg", "K": 8, "fanouts": [10, 25]}))
    'fig11 · reg · K=8'
    """
    name = point.sweep.split("/")[-1]
    scalars = [(key, value) for key, value in point.config.items() if isinstance(value, int | float | str)]
    parts = [
        value if isinstance(value, str) else f"{key.removeprefix('num_')}={text(value)}"
        for key, value in scalars
        if value != ""
    ]
    for part in parts + ([point.dataset.name] if point.dataset else []):
        if len(name) + 3 + len(part) <= _RUN_NAME_LENGTH:
            name += f" · {part}"
    return name


def _plain(name: str, value: Any) -> Any:
    if getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, str):
        return encodable(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    raise TypeError(
        f"column {name!r} contains a {type(value).__name__}; rows may contain numbers, strings, bools and None"
    )


def _is_axis(rows: Sequence[Row], name: str) -> bool:
    """Return whether a column has distinct whole numbers, so that it can be the axis of the curves."""
    steps = [row.get(name) for row in rows]
    whole = all(isinstance(step, int) and not isinstance(step, bool) for step in steps)
    return whole and len(set(steps)) == len(steps)
