"""The records of a grid point: before it runs (`Point`) and after it was started (`Run`).

Constructors do not check the fields; `record_checks.py` does, for every record read from a file or a server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field

Row = Mapping[str, Any]

RUNNING, FINISHED, FAILED, KILLED = "RUNNING", "FINISHED", "FAILED", "KILLED"
"""Statuses of a run, as in MLflow."""

Key = Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]
Size = Annotated[str, Field(pattern="^(smoke|real|paper)$")]
FigureName = Annotated[str, Field(pattern=r"^\w[\w.-]*/\w[\w.-]*$")]
"""paper/figure; both become names of folders, so the pattern excludes paths that leave the store's folder."""

_STRICT = ConfigDict(strict=True, extra="forbid", revalidate_instances="always")
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
