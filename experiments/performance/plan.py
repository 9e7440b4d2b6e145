"""Planned beside smallest possible numbers of micro-batches, over random configurations.

A configuration is a graph, a model, fanouts, a batch, a partition method, an optimizer and a capacity, all drawn by one
seeded generator; with these capacities the smallest number K* is between 2 and about 64. K* is found by measuring:
partitions into 1, 2, 3, … parts are trained until all parts of one fit into the capacity. The part with the largest
estimate goes first, since one that does not fit ends the attempt; a part that is estimated at more than 1.25 times the
capacity is not measured. The planner hits K* if its K is within one, or 8 %, of it.
"""

import math
import random
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from experiments.performance.cases import Case, CasesPoint, as_row
from experiments.performance.graphs import POWER_LAW
from experiments.performance.plan_setting import MOST_PARTS, OPTIMIZERS, Setting, smallest_measured
from workbench.core.errors import CapacityError
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.memory.plan import Plan
from workbench.nn.model import MODEL_KINDS

GRAPHS = (
    "amazon-computers",
    "citeseer",
    "coauthor-cs",
    "cora",
    "dblp-2010",
    "ogbn-arxiv",
    "pubmed-nofeat",
    "soc-epinions1",
    "tolokers",
    POWER_LAW,
)
METHODS = ("range", "random", "metis", "reg", "auto")
HITS = 0.9
_MOST_BYTES = 1 << 30


class Config(CasesPoint):
    """A range of the random configurations of one graph."""


def run(config: Config) -> Iterator[dict[str, Any]]:
    """One row per configuration whose K* is at most 128."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "layers|norms")  # batch statistics differ by micro-batch, memory does not
        for case in config.cases(sequence, GRAPHS):
            row = _measure(case)
            if row is not None:
                yield row


def sequence(rng: random.Random, graphs: Sequence[str]) -> Iterator[Case]:
    """Random configurations without end for which there is something to plan.

    Args:
        rng: that draws.
        graphs: names to draw from.
    """
    while True:
        kind = rng.choice(MODEL_KINDS)
        case = {
            "graph": rng.choice(graphs),
            "kind": kind,
            "in_dim": rng.choice([16, 64, 128, 300]),
            "hidden_dim": rng.choice([16, 32, 64, 128]),
            "out_dim": rng.choice([2, 7, 40]),
            "heads": rng.choice([1, 2, 4]) if kind == "gat" else 1,
            "norm": rng.choice([None, None, "layer"]),
            "dropout": rng.choice([0.0, 0.5]),
            "optimizer": rng.choice(list(OPTIMIZERS)),
            "fanouts": [rng.choice([2, 5, 10, 15]) for _ in range(rng.randint(1, 3))],
            "num_seeds": int(200 * 20 ** rng.random()),
            "method": rng.choice(METHODS),
            "seed": rng.randrange(10**6),
        }
        capacity = _draw_capacity(Setting.of(case), rng)
        if capacity is not None:
            yield {**case, "capacity_bytes": capacity}


def _draw_capacity(setting: Setting, rng: random.Random) -> int | None:
    """A capacity between what the whole batch and what many parts need; None if these hardly differ."""
    most = max(setting.estimated([setting.batch]))
    least = max(setting.estimated(setting.parts(min(MOST_PARTS, setting.batch.num_seeds // 2))))
    if least > 0.7 * most or most > _MOST_BYTES:
        return None
    return int(math.exp(rng.uniform(math.log(least), math.log(0.9 * most))))


def _measure(case: Case) -> dict[str, Any] | None:
    """The row of a configuration; None without a K*."""
    setting, capacity = Setting.of(case), case["capacity_bytes"]
    setting.train([setting.tiny])
    smallest = smallest_measured(setting, capacity)
    if smallest is None:
        return None
    try:
        plan, split = setting.plan("even"), setting.plan("split")
    except CapacityError as error:
        return {**as_row(setting.case), "smallest": smallest, "refused": str(error)}
    return {
        **as_row(setting.case),
        "smallest": smallest,
        **_planned(plan, split, setting.measured(plan.micro), smallest),
    }


def _planned(plan: Plan, split: Plan, peak: int, smallest: int) -> dict[str, Any]:
    return {
        "planned": plan.num_parts,
        "hit": abs(plan.num_parts - smallest) <= max(1, 0.08 * smallest),
        "measured_bytes": peak,
        "peak_error": plan.peak_bytes / peak - 1,
        "redundancy": plan.redundancy.ratio,
        "tries": len(plan.tried),
        "seconds": sum(plan.seconds.values()),
        "partition_seconds": plan.seconds["partition"],
        "estimate_seconds": plan.seconds["estimate"],
        "split_planned": split.num_parts,
        "split_seconds": sum(split.seconds.values()),
        "refused": None,
    }


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows: Any = table.set_index("case_seed")
    return Title("{hit} plans hit the smallest K that fits", hit=rows.hit.map(str) == "True")


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import error_dots

    rows = table.dropna(subset=["planned"])
    figure = error_dots(
        rows.assign(excess=rows.planned / rows.smallest - 1, case="configuration", panel=""),
        x="method",
        group="case",
        facet="panel",
        error="excess",
        title=title(table, reported).text,
        subtitle="planned over smallest number of micro-batches, less 1; a dot for each random configuration",
    )
    return figure.update_yaxes(title_text="excess of micro-batches")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = table.assign(load=table.measured_bytes / table.capacity_bytes, found=table.planned.notna())
    hit = rows.hit.map(str) == "True"
    shares = pd.DataFrame({"over": ["all cases"], "hit": [hit.mean()], "found": [rows.found.mean()]})
    return [
        claims.within(
            "found-in-every-case",
            "a plan is found in every case",
            shares,
            value="found",
            by=["over"],
            least=1,
            form=".1%",
        ),
        claims.within(
            "fits-in-every-case",
            "every plan measures within its capacity",
            rows,
            value="load",
            by=["graph", "kind", "case_seed"],
            most=1,
            form=".1%",
        ),
        claims.within(
            "hits-in-most",
            "at least 90 % of the plans are within one, or 8 %, of the smallest number of micro-batches",
            shares,
            value="hit",
            by=["over"],
            least=HITS,
            form=".1%",
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Shares of hits and of plans that fit, and the planned over the smallest number of micro-batches."""
    name = "number of micro-batches against the smallest that measures below the capacity"
    methods = {f"{name}: {method}": rows for method, rows in table.groupby("method")}
    return pd.DataFrame([_summary(group, rows) for group, rows in {name: table, **methods}.items()])


def _summary(name: str, rows: Any) -> dict[str, Any]:
    excess, hit = rows.planned / rows.smallest, rows.hit.map(str) == "True"
    return {
        "measured": name,
        "cases": len(rows),
        "hits": hit.mean(),
        "fits": (rows.measured_bytes <= rows.capacity_bytes).mean(),
        "median": excess.median(),
        "from": excess.min(),
        "to": excess.max(),
        "tries": rows.tries.mean(),
        "seconds": rows.seconds.median(),
        "split_parts": (rows.split_planned / rows.planned).mean(),
        "split_seconds": rows.split_seconds.sum() / rows.seconds.sum(),
    }
