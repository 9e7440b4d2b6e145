"""What is kept of a grid point: before it runs (`Point`) and afterwards (`Run`).

Constructors do not check the fields; `checks.py` does, wherever a record enters from a file or a server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field

Row = Mapping[str, Any]

RUNNING, FINISHED, FAILED, KILLED = "RUNNING", "FINISHED", "FAILED", "KILLED"
"""States of a run, as MLflow calls them."""

Key = Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]
Size = Annotated[str, Field(pattern="^(smoke|real|paper)$")]
FigureName = Annotated[str, Field(pattern=r"^\w[\w.-]*/\w[\w.-]*$")]
"""paper/figure: both become names of folders, so neither may lead out of one."""

_STRICT = ConfigDict(strict=True, extra="forbid", revalidate_instances="always")
_LAST_SECOND = 1e11  # since 1970: beyond it there are no dates


def plain_value(value: Any) -> Any:
    """A value that a row may hold: a number, a string, a bool or None.

    Raises:
        ValueError: anything else.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"rows hold numbers, strings, bools and None, not a {type(value).__name__}")


@dataclass(frozen=True)
class DatasetInfo:
    """The data set that a point reads.

    Args:
        name: as `load_dataset` takes it.
        fingerprint: sha256 over its contents.
        source: where it comes from, for people.
        num_nodes: of its graph.
        num_edges: of its graph.
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
        sweep: "paper/figure" of the experiment whose `run` makes the rows; other figures may be views of it.
        size: "smoke", "real" or "paper".
        key: sha256 over all that decides the rows: code, configuration, data set.
        config: the resolved configuration, nested as in YAML; JSON values only.
        figures: names "paper/figure" of all views of the sweep, the sweep's own included.
        dataset: None for a point without one.
        tags: device, commit, versions and the like, for people and for searches.
    """

    sweep: FigureName
    size: Size
    key: Key
    config: Mapping[str, Any]
    figures: tuple[FigureName, ...] = ()
    dataset: DatasetInfo | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    __pydantic_config__ = _STRICT

    @property
    def paper(self) -> str:
        return self.sweep.split("/")[0]


@dataclass(frozen=True)
class Run:
    """A point that was started.

    Args:
        point: what was run.
        run_id: its name in the store.
        status: RUNNING, FINISHED, FAILED or KILLED.
        rows: flat mappings of column to number, string, bool or None; empty unless finished. Rows that hold "epoch" or
            "step" are a curve, in its order.
        error: what stopped it, one line; None unless failed or killed.
        started_at: seconds since 1970.
        seconds: from start to end; None while running.
    """

    point: Point
    run_id: Annotated[str, Field(pattern=r"^[\w-]{1,64}$")]
    status: Annotated[str, Field(pattern=f"^({RUNNING}|{FINISHED}|{FAILED}|{KILLED})$")]
    rows: tuple[Mapping[str, Annotated[Any, AfterValidator(plain_value)]], ...] = ()
    error: str | None = None
    started_at: Annotated[float, Field(ge=0, le=_LAST_SECOND, allow_inf_nan=False)] = 0.0
    seconds: Annotated[float, Field(allow_inf_nan=False)] | None = None

    __pydantic_config__ = _STRICT
