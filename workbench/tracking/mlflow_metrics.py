"""Conversion of rows to MLflow's metrics, and of the columns that tell rows apart to parameters."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from workbench.tracking.mlflow_fields import safe_name, shorten, text
from workbench.tracking.record import Row

_MIB, _BYTES = 2**20, "_bytes"


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


def metrics(rows: Sequence[Row]) -> list[Value]:
    """Convert the numbers in rows to metrics; bytes are logged in MiB too.

    Several rows are curves over their axis: "step" or "epoch", else the number with the most values among the columns
    that tell the rows apart. Texts among these become part of the name ("miss_rate/lru"), and values that differ only
    in the others, such as repetitions, are averaged. Infinities are dropped: MLflow would replace them by the largest
    float, which makes the curve unreadable.

    Args:
        rows: rows of JSON values.
    """
    axis, texts, columns = _axes(rows)
    found = [
        ((_named(name, row, texts), _step(row, axis, position)), number)
        for position, row in enumerate(rows)
        for name, value in row.items()
        if name not in columns and (number := _number(value)) is not None
    ]
    places: dict[tuple[str, int], list[float]] = {}
    for place, number in found:
        places.setdefault(place, []).append(number)
    values = [Value(name, fmean(numbers), step) for (name, step), numbers in places.items()]
    return [*values, *(in_mib for value in values if (in_mib := _in_mib(value)) is not None)]


def row_parameters(rows: Sequence[Row]) -> dict[str, str]:
    """The columns that tell rows apart, as parameters: the values that each takes, sorted.

    Args:
        rows: rows of JSON values; a single row has none.
    """
    columns = [name for name in _axes(rows)[2] if name not in ("step", "epoch")]
    values = {name: list(dict.fromkeys(row.get(name) for row in rows)) for name in columns}
    return {safe_name(name): shorten(text(_sorted(found))) for name, found in values.items()}


def _axes(rows: Sequence[Row]) -> tuple[str | None, list[str], list[str]]:
    """Axis of the curves, columns that become part of names, and all columns that tell rows apart.

    These come first in a row: they are the shortest sequence of leading columns whose values no two rows share.
    """
    step = next((name for name in ("step", "epoch") if _is_axis(rows, name)), None)
    if step is not None:
        return step, [], [step]
    columns = _leading(rows)
    numbers = {name: {row.get(name) for row in rows} for name in columns if _are_whole(rows, name)}
    axis = max(numbers, key=lambda name: len(numbers[name]), default=None)
    texts = [name for name in columns if all(isinstance(row.get(name), str) for row in rows)]
    return axis, texts, columns


def _leading(rows: Sequence[Row]) -> list[str]:
    """The columns that tell rows apart; none of a single row, or if only a measurement would do."""
    if len(rows) < 2:
        return []
    chosen: list[str] = []
    for name in rows[0]:
        values = [row.get(name) for row in rows]
        measured = any(isinstance(value, float) for value in values) and len(set(values)) == len(rows)
        if measured:
            return []
        if len(set(values)) > 1:
            chosen.append(name)
        if len({tuple(row.get(each) for each in chosen) for row in rows}) == len(rows):
            return chosen
    return []


def _named(name: str, row: Row, texts: Sequence[str]) -> str:
    return safe_name("/".join([name, *(str(row[column]).replace("/", " ") for column in texts)]))


def _step(row: Row, axis: str | None, position: int) -> int:
    return position if axis is None else int(row[axis])


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not math.isinf(value) else None


def _in_mib(value: Value) -> Value | None:
    name, slash, rest = value.name.partition("/")
    if not name.endswith(_BYTES):
        return None
    return Value(f"{name.removesuffix(_BYTES)}_MiB{slash}{rest}", value.value / _MIB, value.step)


def _is_axis(rows: Sequence[Row], name: str) -> bool:
    """Return whether a column has distinct whole numbers, so that it can be the axis of the curves."""
    return _are_whole(rows, name) and len({row.get(name) for row in rows}) == len(rows)


def _are_whole(rows: Sequence[Row], name: str) -> bool:
    return all(isinstance(row.get(name), int) and not isinstance(row.get(name), bool) for row in rows)


def _sorted(values: list[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:  # of several kinds
        return values
