"""Validation of external records: lines of a file, runs from a server, points from a caller."""

import re
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from workbench.core.errors import CorruptFileError
from workbench.tracking.record import FigureName, Key, Point, Run, Size


@dataclass(frozen=True)
class _Line(Run):
    """A run as a line of a file, with the version of the format."""

    schema: Literal[1] = field(kw_only=True)


@dataclass(frozen=True)
class _Summary:
    """The names from which the paths of a summary's files are built."""

    figure: FigureName
    sweep: FigureName
    size: Size
    key: Key


def parse_run(line: bytes, where: str) -> Run:
    """Parse and validate a run from a line of JSON.

    Args:
        line: JSON object.
        where: file and line number, for the message.

    Raises:
        CorruptFileError: if the line is not a valid run; the message names the field, its value and the rule.
    """
    try:
        parsed = _adapter(_Line).validate_json(line)
    except ValidationError as error:
        raise CorruptFileError(f"{where} is not a valid run: {_first(error)}; remove it or restore the file") from None
    return Run(**{each.name: getattr(parsed, each.name) for each in fields(Run)})


def check_run(run: Run, where: str) -> Run:
    """Return a run after validating all its fields.

    Args:
        run: a run built from the response of a server or database.
        where: location of the run, for the message.

    Raises:
        CorruptFileError: if a field is invalid; the message names the field, its value and the rule.
    """
    try:
        return _adapter(Run).validate_python(run)
    except ValidationError as error:
        raise CorruptFileError(f"{where} is not a valid run: {_first(error)}") from None


def check_point(point: Point) -> None:
    """Validate a point, since an invalid one could be written, but not read back.

    Raises:
        ValueError: if a field is invalid; the message names the field, its value and the rule.
    """
    _check(Point, point, "point")


def check_summary(figure: str, sweep: str, size: str, key: str) -> None:
    """Validate the names of a summary, which must not point outside the store's folder.

    Raises:
        ValueError: if a name is invalid; the message names it, its value and the rule.
    """
    _check(_Summary, {"figure": figure, "sweep": sweep, "size": size, "key": key}, "summary")


def _check(kind: Any, value: Any, name: str) -> None:
    try:
        _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise ValueError(f"{name}: {_first(error)}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _first(error: ValidationError) -> str:
    """Describe the first problem: the field, its value and the rule."""
    problem = error.errors(include_url=False)[0]
    field_path, rule = ".".join(map(str, problem["loc"])), problem["msg"].removeprefix("Value error, ")
    rule = re.sub("^(String|Input) should", "it must", rule)
    if problem["type"] in ("missing", "json_invalid", "unexpected_keyword_argument"):
        return f"{field_path}: {rule}" if field_path else rule
    return f"{field_path or 'the line'} is {_truncated(problem['input'])}; {rule}"


def _truncated(value: Any, length: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= length else f"{text[: length - 1]}…"
