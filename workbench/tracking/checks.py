"""Checks of records that enter from outside: lines of a file, runs of a server, points of a caller."""

import re
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from workbench.core.errors import CorruptFileError
from workbench.tracking.record import FigureName, Key, Point, Run, Size


@dataclass(frozen=True)
class _Line(Run):
    """A run as a line of a file: with the version of its format."""

    schema: Literal[1] = field(kw_only=True)


@dataclass(frozen=True)
class _Summary:
    """What names the files of a figure's summary."""

    figure: FigureName
    sweep: FigureName
    size: Size
    key: Key


def parse_run(line: bytes, where: str) -> Run:
    """A run from a line of JSON.

    Args:
        line: JSON object.
        where: file and line, for the message.

    Raises:
        CorruptFileError: it is not a run; the message names the field, its value and what it must be.
    """
    try:
        found = _adapter(_Line).validate_json(line)
    except ValidationError as error:
        raise CorruptFileError(f"{where} holds no run: {_first(error)}; remove it or restore the file") from None
    return Run(**{each.name: getattr(found, each.name) for each in fields(Run)})


def check_run(run: Run, where: str) -> Run:
    """The run, if all its fields hold what they may.

    Args:
        run: built from a server's or a database's answer.
        where: where it is stored, for the message.

    Raises:
        CorruptFileError: with the field, its value and what it must be.
    """
    try:
        return _adapter(Run).validate_python(run)
    except ValidationError as error:
        raise CorruptFileError(f"{where} holds no run: {_first(error)}") from None


def check_point(point: Point) -> None:
    """Refuse a point that could be written, but not read back.

    Raises:
        ValueError: with the field, its value and what it must be.
    """
    _check(Point, point, "point")


def check_summary(figure: str, sweep: str, size: str, key: str) -> None:
    """Refuse names of a summary that could lead out of the store's folder.

    Raises:
        ValueError: with the field, its value and what it must be.
    """
    _check(_Summary, {"figure": figure, "sweep": sweep, "size": size, "key": key}, "summary")


def _check(kind: Any, value: Any, what: str) -> None:
    try:
        _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise ValueError(f"{what}: {_first(error)}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _first(error: ValidationError) -> str:
    """One problem is enough: its field, its value and the rule."""
    problem = error.errors(include_url=False)[0]
    place, rule = ".".join(map(str, problem["loc"])), problem["msg"].removeprefix("Value error, ")
    rule = re.sub("^(String|Input) should", "it must", rule)
    if problem["type"] in ("missing", "json_invalid", "unexpected_keyword_argument"):
        return f"{place}: {rule}" if place else rule
    return f"{place or 'the line'} is {_short(problem['input'])}; {rule}"


def _short(value: Any, length: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= length else f"{text[: length - 1]}…"
