"""What a store shows of a point beside keeping it: flat names, parameters, metrics, a short name."""

import json
import math
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from workbench.tracking.record import Point, Row

NAME_LENGTH, VALUE_LENGTH = 250, 6000
"""MLflow's limits for names and for values of parameters, in characters."""

_RUN_NAME_LENGTH = 80
_NOT_IN_NAMES = re.compile(r"[^\w\-./ :]")


class Value(NamedTuple):
    """One value of a metric.

    Args:
        name: of the metric.
        value: NaN is one too.
        step: place on the curve.
    """

    name: str
    value: float
    step: int


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nested keys joined by "."; the `name` of what has one stands for it.

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
    """A value as a table shows it: lists as JSON, all else as it is."""
    return text(value) if isinstance(value, list | tuple) else value


def text(value: Any) -> str:
    """A value as a parameter shows it: strings as they are, all else as JSON.

    >>> text("reg"), text([10, 25]), text(None), text(0.5)
    ('reg', '[10, 25]', 'null', '0.5')
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def shorten(value: str, length: int = VALUE_LENGTH) -> str:
    """At most `length` characters."""
    return value if len(value) <= length else value[: length - 1] + "…"


def encodable(value: str) -> str:
    """Text that can be written as UTF-8: names of files may contain bytes that are no text.

    >>> encodable("caf\\udce9")
    'caf?'
    """
    return value.encode(errors="replace").decode()


def safe_name(name: str) -> str:
    """A name that MLflow takes for a parameter, a metric or a tag.

    >>> safe_name("inputs/full (%)"), safe_name("../a//b")
    ('inputs/full ___', '_/a/b')
    """
    normal = posixpath.normpath(_NOT_IN_NAMES.sub("_", name)).lstrip("/")
    normal = "/".join("_" if part == ".." else part for part in normal.split("/"))
    return normal[:NAME_LENGTH].rstrip("/") if normal not in ("", ".") else "_"


def parameters(config: Mapping[str, Any]) -> dict[str, str]:
    """A configuration as MLflow's parameters."""
    return {safe_name(key): shorten(text(value)) for key, value in flatten(config).items()}


def plain_rows(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows of JSON values: scalars of NumPy and torch become Python's.

    Raises:
        TypeError: a value that is no number, string, bool or None.
    """
    return [{str(name): _plain(str(name), value) for name, value in row.items()} for row in rows]


def metrics(rows: Sequence[Row]) -> list[Value]:
    """The numbers in rows as metrics; several rows are a curve over "step" or "epoch", else over the rows' places.

    Infinities are left out: MLflow would put the largest float in their place, and no curve could be read beside it.
    """
    axis = next((name for name in ("step", "epoch") if _is_axis(rows, name)), None)
    return [
        Value(safe_name(name), float(value), int(row[axis]) if axis else place)
        for place, row in enumerate(rows)
        for name, value in row.items()
        if name != axis and isinstance(value, int | float) and not math.isinf(value)
    ]


def milliseconds(seconds: float) -> int:
    """A time as MLflow takes it; 0 would mean now."""
    return max(1, round(seconds * 1000))


def batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    """Parts of a list of at most `size` items."""
    return (items[first : first + size] for first in range(0, len(items), size))


def run_name(point: Point) -> str:
    """Short, from what the configuration holds in single values; what may be cut off comes last.

    >>> run_name(Point("betty/fig11", "smoke", "k", {"method": "reg", "K": 8, "fanouts": [10, 25]}))
    'fig11 · reg · K=8'
    """
    name = point.sweep.split("/")[-1]
    given = [(key, value) for key, value in point.config.items() if isinstance(value, int | float | str)]
    parts = [
        value if isinstance(value, str) else f"{key.removeprefix('num_')}={text(value)}"
        for key, value in given
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
    raise TypeError(f"column {name!r} holds a {type(value).__name__}; rows hold numbers, strings, bools and None")


def _is_axis(rows: Sequence[Row], name: str) -> bool:
    """A step may stand for one row only."""
    steps = [row.get(name) for row in rows]
    whole = all(isinstance(step, int) and not isinstance(step, bool) for step in steps)
    return whole and len(set(steps)) == len(steps)
