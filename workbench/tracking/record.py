"""What is kept of a grid point: before it runs (`Point`) and afterwards (`Run`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]

RUNNING, FINISHED, FAILED, KILLED = "RUNNING", "FINISHED", "FAILED", "KILLED"
"""States of a run, as MLflow calls them."""


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
    num_nodes: int
    num_edges: int


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

    sweep: str
    size: str
    key: str
    config: Mapping[str, Any]
    figures: Sequence[str] = ()
    dataset: DatasetInfo | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

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
    run_id: str
    status: str
    rows: tuple[Row, ...] = ()
    error: str | None = None
    started_at: float = 0.0
    seconds: float | None = None
