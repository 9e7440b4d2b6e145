"""Generating stand-ins: seconds, memory, and how near the result is to its targets."""

import time
from collections.abc import Iterator
from typing import Any, Literal

import pandas as pd
from pydantic import Field

from workbench.experiment import claims
from workbench.experiment.config import PointConfig
from workbench.experiment.finding import Finding
from workbench.meter.limit import HostPeak
from workbench.standin import build_standin, required_bytes
from workbench.standin.graph_statistics import compare as achieved_targets


class Config(PointConfig):
    """One stand-in, generated at a scale in (0, 1]."""

    device: Literal["cpu"] = "cpu"
    standin: str
    scale: float = Field(gt=0, le=1)


def run(config: Config) -> Iterator[dict[str, Any]]:
    """One row per target; `peak_bytes` is the resident memory that generation adds to the process."""
    start = time.perf_counter()
    with HostPeak() as peak:
        data = build_standin(config.standin, scale=config.scale, seed=config.seed)
    seconds = time.perf_counter() - start
    required, _ = required_bytes(config.standin, config.scale)
    for target in achieved_targets(data, scale=config.scale):
        yield {
            "property": target.name,
            "target": target.target,
            "achieved": target.achieved,
            "tolerance": target.tolerance,
            "met": target.met,
            "seconds": seconds,
            "peak_bytes": peak.nbytes,
            "required_bytes": required,
        }


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import error_dots

    rows = table[table.target > 0]
    met = rows.met.map(str).map({"True": "within its tolerance", "False": "outside"})
    return error_dots(
        rows.assign(error=rows.achieved / rows.target - 1, verdict=met, panel=""),
        x="standin",
        group="verdict",
        facet="panel",
        title="Stand-ins beside their targets",
        subtitle="achieved over target, less 1; a dot for each property that is not 0",
    ).update_yaxes(title_text="deviation from the target")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = table.assign(reached=(table.met.map(str) == "True").astype(int))
    costs = _costs(table)
    return [
        claims.within(
            "targets-are-met",
            "every property is within its tolerance",
            rows,
            value="reached",
            by=["standin", "property"],
            least=1,
            form=".0f",
        ),
        claims.within(
            "required-memory-is-enough",
            "generation needs at most the memory that is checked for beforehand",
            costs.assign(share=costs.peak_bytes / costs.required_bytes),
            value="share",
            by=["standin"],
            most=1,
            form=".0%",
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Seconds, memory and targets met, per stand-in."""
    costs = _costs(table).rename(columns={"standin": "measured"})
    met: Any = table.assign(met=table.met.map(str) == "True").groupby("standin", sort=False).met
    return costs.assign(targets=met.size().to_numpy(), targets_met=met.sum().to_numpy())


def _costs(table: pd.DataFrame) -> pd.DataFrame:
    """One row per stand-in."""
    columns = ["standin", "scale", "seconds", "peak_bytes", "required_bytes"]
    return table.drop_duplicates("standin").reset_index(drop=True).filter(columns)
