"""The records of a grid point: before it runs (`Point`) and after it was started (`Run`).

Constructors do not check the fields; `parse_run` and `check_run` do, for every record read from a file or a server.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from workbench.core.errors import CorruptFileError
from workbench.error_text import truncated

Row = Mapping[str, Any]

RUNNING, FINISHED, FAILED, KILLED = "RUNNING", "FINISHED", "FAILED", "KILLED"
"""Statuses of a run, as in MLflow."""

Key = Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]

Size = Annotated[str, Field(pattern="^(smoke|real|paper)$")]

FigureName = Annotated[str, Field(pattern=r"^\w[\w.-]*/\w[\w.-]*$")]
"""paper/figure; both become names of folders, so the pattern excludes paths that leave the store's folder."""

_STRICT = ConfigDict(strict=True, extra="forbid", revalidate_instances="always")

_SHOWN_CHARS = 60  # of a value in a message

_MAX_TIMESTAMP = 1e11  # seconds since 1970; datetime supports no later years


def plain_value(value: Any) -> Any:
    """Return a value after checking that a row may contain it.

    Raises:
        ValueError: if it is not a number, string, bool or None.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"rows may contain numbers, strings, bools and None, not a {type(value).__name__}")


@dataclass(frozen=True)
class DatasetInfo:
    """The data set that a point reads.

    Args:
        name: name for `load_dataset`.
        fingerprint: sha256 over its contents.
        source: description of its origin, for display.
        num_nodes: number of nodes of its graph.
        num_edges: number of edges of its graph.
    """

    name: str
    fingerprint: str
    source: str
    num_nodes: Annotated[int, Field(ge=0)]
    num_edges: Annotated[int, Field(ge=0)]

    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class Point:
    """One grid point of a sweep.

    Args:
        sweep: "paper/figure" of the experiment whose `run` yields the rows; other figures may be views of it.
        size: "smoke", "real" or "paper".
        key: sha256 over everything that determines the rows: code, configuration, data set.
        config: the resolved configuration, nested as in YAML, with JSON values only.
        figures: "paper/figure" of all views of the sweep, including the sweep itself.
        dataset: the data set; None for a point that reads none.
        tags: device, commit, versions etc., for display and search.
        label: short text that tells the point from the others of its sweep, such as "reg · K=8".
    """

    sweep: FigureName
    size: Size
    key: Key
    config: Mapping[str, Any]
    figures: tuple[FigureName, ...] = ()
    dataset: DatasetInfo | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    label: str = ""

    __pydantic_config__ = _STRICT

    @property
    def paper(self) -> str:
        return self.sweep.split("/")[0]


@dataclass(frozen=True)
class Run:
    """A point that was started.

    Args:
        point: the point.
        run_id: id in the store.
        status: RUNNING, FINISHED, FAILED or KILLED.
        rows: flat mappings from column to number, string, bool or None; empty unless finished. Rows with a column
            "epoch" or "step" are the points of a curve, in order.
        error: one line that says why the run failed or was killed; None otherwise.
        started_at: time of the start in seconds since 1970.
        seconds: duration; None while running.
    """

    point: Point
    run_id: Annotated[str, Field(pattern=r"^[\w-]{1,64}$")]
    status: Annotated[str, Field(pattern=f"^({RUNNING}|{FINISHED}|{FAILED}|{KILLED})$")]
    rows: tuple[Mapping[str, Annotated[Any, AfterValidator(plain_value)]], ...] = ()
    error: str | None = None
    started_at: Annotated[float, Field(ge=0, le=_MAX_TIMESTAMP, allow_inf_nan=False)] = 0.0
    seconds: Annotated[float, Field(allow_inf_nan=False)] | None = None

    __pydantic_config__ = _STRICT


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
    return f"{field_path or 'the line'} is {truncated(repr(problem['input']), _SHOWN_CHARS)}; {rule}"
