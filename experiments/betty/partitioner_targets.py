"""Targets of the batch partitioners: how far each choice of method may be from its best rival."""

from typing import Literal, NamedTuple

import pandas as pd

from workbench.experiment import claims
from workbench.experiment.finding import Finding

LARGE = 1_000_000  # nonzeros of REG's graph above which its time counts
CASE = ["dataset", "fanouts", "num_parts"]
BASELINES = ["range", "random", "metis", "reg"]
TOTAL, LARGEST, FAST = "auto (total)", "auto (largest)", "fast (largest)"  # choices with targets


class Target(NamedTuple):
    """Upper bounds of the ratio of a choice's value to its best rival's: `median` over the cases of a data set and
    `worst` in any, among cases with a large or small graph of REG, or all."""

    name: str
    choice: str
    value: str
    rivals: list[str]
    median: float
    worst: float = float("inf")
    of: Literal["all", "large", "small"] = "all"


def held(target: Target, rows: pd.DataFrame) -> list[Finding]:
    """Whether a choice met its target; no finding if the grid is without the choice or without REG."""
    large = {"all": "index == index", "large": f"not reg_nonzeros <= {LARGE}", "small": f"reg_nonzeros <= {LARGE}"}
    cases = rows.query(large[target.of])
    if not {target.choice, "reg"} <= set(cases.choice):
        return []
    best = "REG's" if target.rivals == ["reg"] else f"the best of {', '.join(target.rivals)}"
    never = "" if target.worst == float("inf") else f", never above {target.worst:g} times"
    where = "" if target.of == "all" else f", where REG's graph is {target.of} ({LARGE:,} nonzeros)"
    median = "in the median of every data set"
    told = f"{target.choice}: {SAID[target.value]} at most {target.median:g} times {best} {median}{never}{where}"
    bounds = {"median": target.median, "worst": target.worst, "timed": target.value.endswith("_seconds")}
    ways = {
        "value": target.value,
        "among": "choice",
        "winner": target.choice,
        "rivals": target.rivals,
        "by": CASE,
        "groups": CASE[:1],
    }
    return [claims.ratio(target.name, told, cases, **ways, **bounds)]


SAID = {
    "excess": "inputs beyond the batch's",
    "largest_inputs": "inputs of the largest part",
    "host_seconds": "seconds of partition and split",
}
TARGETS = [
    Target("total-excess", TOTAL, "excess", ["reg"], 0.8, 1.02),
    Target("largest-part", LARGEST, "largest_inputs", BASELINES, 0.85, 1.02),
    Target("largest-excess", LARGEST, "excess", ["reg"], 1.0),
    Target("total-seconds-large", TOTAL, "host_seconds", ["reg"], 1.0, of="large"),
    Target("total-seconds-small", TOTAL, "host_seconds", ["reg"], 3.0, of="small"),
    Target("largest-seconds-large", LARGEST, "host_seconds", ["reg"], 1.0, of="large"),
    Target("largest-seconds-small", LARGEST, "host_seconds", ["reg"], 3.0, of="small"),
    Target("fast-seconds", FAST, "host_seconds", ["reg"], 0.25, of="large"),
    Target("fast-excess", FAST, "excess", ["reg"], 1.0, of="large"),
    Target("fast-largest", FAST, "largest_inputs", ["reg"], 1.0, of="large"),
]
