"""Planned against smallest possible numbers of micro-batches over random configurations.

A configuration is a graph, a model, fanouts, a batch, a partition method, an optimizer and a capacity, all drawn from
one seeded generator; capacities are such that the smallest number K* lies between 2 and about 64. K* is found by
measuring: partitions into 1, 2, 3, … parts are trained, until all parts of one measure below the capacity. The part
with the largest estimate goes first, since one that does not fit ends the attempt; one that is estimated at 1.25 times
the capacity is not measured. The planner hits K* where its K is within one, or 8 %.
"""

import math
import random
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import workbench as wb
from experiments.performance.graphs import power_law_graph, real_graph
from workbench.core.errors import CapacityError
from workbench.core.graph import Graph
from workbench.memory.estimate import Estimator, estimator_for
from workbench.memory.plan import Plan, plan_with
from workbench.nn.model import MODEL_KINDS
from workbench.training.epoch_memory import meter_epoch

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
)
METHODS = ("range", "random", "metis", "reg", "auto")
CASES = 300
MARGIN = 0.02
_MOST_PARTS = 64
_MOST_BYTES = 1 << 30
_HOPELESS = 1.25
_OPTIMIZERS = {
    "adam": torch.optim.Adam,
    "sgd": partial(torch.optim.SGD, lr=0.1),
    "sgd momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
}


@cache
def _graph(name: str) -> tuple[Graph, Tensor]:
    found = real_graph(name)
    graph = power_law_graph(20_000, 280_000) if found is None else found[0]
    return graph, graph.indptr.diff().nonzero()[:, 0]


def draw_case(rng: random.Random, names: Sequence[str]) -> dict[str, Any]:
    """One configuration, but for the capacity."""
    kind = rng.choice(MODEL_KINDS)
    return {
        "graph": rng.choice(names),
        "kind": kind,
        "in_dim": rng.choice([16, 64, 128, 300]),
        "hidden_dim": rng.choice([16, 32, 64, 128]),
        "out_dim": rng.choice([2, 7, 40]),
        "heads": rng.choice([1, 2, 4]) if kind == "gat" else 1,
        "norm": rng.choice([None, None, "layer"]),
        "dropout": rng.choice([0.0, 0.5]),
        "optimizer": rng.choice(list(_OPTIMIZERS)),
        "fanouts": [rng.choice([2, 5, 10, 15]) for _ in range(rng.randint(1, 3))],
        "num_seeds": int(200 * 20 ** rng.random()),
        "method": rng.choice(METHODS),
        "seed": rng.randrange(10**6),
    }


@dataclass(frozen=True, eq=False)
class _Setting:
    """A configuration ready to be planned and trained."""

    case: dict[str, Any]
    batch: wb.MiniBatch
    model: Any
    optimizer: torch.optim.Optimizer
    estimator: Estimator
    x: Tensor
    y: Tensor

    @staticmethod
    def of(case: dict[str, Any]) -> "_Setting":
        graph, nodes = _graph(case["graph"])
        order = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(case["seed"]))
        batch = wb.NeighborSampler(case["fanouts"], seed=case["seed"]).sample(graph, nodes[order[: case["num_seeds"]]])
        names = ("in_dim", "hidden_dim", "out_dim", "heads", "norm", "dropout", "seed")
        sizes = {name: case[name] for name in names}
        model = wb.build_model(case["kind"], num_layers=len(case["fanouts"]), **sizes)
        optimizer = _OPTIMIZERS[case["optimizer"]](model.parameters())
        x = torch.zeros(1, case["in_dim"]).expand(graph.num_nodes, -1)
        y = torch.arange(graph.num_nodes) % case["out_dim"]
        estimator = estimator_for(model, batch, optimizer=optimizer)
        return _Setting(case | {"num_seeds": batch.num_seeds}, batch, model, optimizer, estimator, x, y)

    def parts(self, num_parts: int) -> list[wb.MiniBatch]:
        labels = wb.partition_batch(self.batch, num_parts, method=self.case["method"], seed=self.case["seed"])
        return self.batch.split(labels)

    def estimated(self, micro: Sequence[wb.MiniBatch]) -> list[int]:
        return [self.estimator(mb, accumulating=position > 0).peak_bytes for position, mb in enumerate(micro)]

    def plan(self, capacity: int, strategy: str = "even", margin: float = MARGIN) -> Plan:
        case = {name: self.case[name] for name in ("method", "seed")}
        return plan_with(self.estimator, self.batch, capacity_bytes=capacity, margin=margin, strategy=strategy, **case)

    def train(self, micro: Sequence[wb.MiniBatch], phase: Any = None) -> object:
        return wb.train_step(self.model, micro, self.x, self.y, cross_entropy, self.optimizer, phase=phase)

    def warm_up(self) -> None:
        """Make what a first step makes: optimizer state, machine code."""
        self.train([self.tiny])

    @property
    def tiny(self) -> wb.MiniBatch:
        part = torch.ones(self.batch.num_seeds, dtype=torch.int64)
        part[0] = 0
        return self.batch.split(part)[0]

    def measured(self, micro: Sequence[wb.MiniBatch]) -> int:
        self.model.zero_grad()
        return meter_epoch(self.model, self.optimizer, [micro], self.train).peak_bytes


def smallest_measured(setting: _Setting, capacity: int) -> int | None:
    """K*; None if that would be far more than was drawn for."""
    tiny = setting.tiny
    for num_parts in range(1, min(2 * _MOST_PARTS, setting.batch.num_seeds) + 1):
        micro = setting.parts(num_parts)
        estimates = setting.estimated(micro)
        worst = max(range(len(micro)), key=lambda position: estimates[position])
        if estimates[worst] > _HOPELESS * capacity:
            continue
        alone = [micro[worst]] if worst == 0 else [tiny, micro[worst]]  # all but the first find gradients there
        if setting.measured(alone) <= capacity and setting.measured(micro) <= capacity:
            return num_parts
    return None


def draw_capacity(setting: _Setting, rng: random.Random) -> int | None:
    """A capacity between what the whole batch and what many parts need; None where that hardly differs."""
    most = max(setting.estimated([setting.batch]))
    least = max(setting.estimated(setting.parts(min(_MOST_PARTS, setting.batch.num_seeds // 2))))
    if least > 0.7 * most or most > _MOST_BYTES:
        return None
    return int(math.exp(rng.uniform(math.log(least), math.log(0.9 * most))))


def _measure(case: dict[str, Any], rng: random.Random) -> dict[str, Any] | None:
    """The row of a configuration; None where there is nothing to plan."""
    setting = _Setting.of(case)
    capacity = draw_capacity(setting, rng)
    if capacity is None:
        return None
    setting.warm_up()
    smallest = smallest_measured(setting, capacity)
    if smallest is None:
        return None
    try:
        plan = setting.plan(capacity)
        split = setting.plan(capacity, "split")
    except CapacityError as error:
        return {**setting.case, "capacity_bytes": capacity, "smallest": smallest, "error": str(error)}
    peak = setting.measured(plan.micro)
    return {
        **setting.case,
        "capacity_bytes": capacity,
        "smallest": smallest,
        "planned": plan.num_parts,
        "hit": abs(plan.num_parts - smallest) <= max(1, 0.08 * smallest),
        "measured_bytes": peak,
        "fits": peak <= capacity,
        "peak_error": plan.peak_bytes / peak - 1,
        "redundancy": plan.redundancy.ratio,
        "tries": len(plan.tried),
        "seconds": sum(plan.seconds.values()),
        "partition_seconds": plan.seconds["partition"],
        "estimate_seconds": plan.seconds["estimate"],
        "split_planned": split.num_parts,
        "split_seconds": sum(split.seconds.values()),
        "error": "",
    }


def run(quick: bool = False) -> list[dict[str, Any]]:
    """One row a configuration."""
    rng = random.Random(0)
    names = [name for name in GRAPHS if real_graph(name) is not None] if not quick else []
    rows: list[dict[str, Any]] = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "layers|norms")
        while len(rows) < (10 if quick else CASES):
            row = _measure(draw_case(rng, [*names, "power-law"]), rng)
            if row is not None:
                rows.append(row)
    return rows


def summary(rows: list[dict[str, Any]]) -> str:
    """Hits and tries over all configurations, and by method."""
    lines = [_line("all", rows)]
    return "\n".join(lines + [_line(method, [r for r in rows if r["method"] == method]) for method in METHODS])


def _line(name: str, rows: list[dict[str, Any]]) -> str:
    made = [row for row in rows if not row["error"]]
    if not made:
        return f"{name}: none"
    ratios = sorted(row["planned"] / row["smallest"] for row in made)
    tries, seconds = statistics.fmean(row["tries"] for row in made), [row["seconds"] for row in made]
    split_parts = statistics.fmean(row["split_planned"] / row["planned"] for row in made)
    split_seconds = sum(row["split_seconds"] for row in made) / sum(seconds)
    return (
        f"{name}: {sum(row['hit'] for row in made) / len(rows):.1%} of {len(rows)} hit, {sum(r['fits'] for r in made)} "
        f"fit; K / K* median {statistics.median(ratios):.3f}, 95 % below {ratios[-1 - len(ratios) // 20]:.3f}, from "
        f"{ratios[0]:.3f} to {ratios[-1]:.3f}; {tries:.1f} tries in {statistics.median(seconds):.3f} s, most "
        f"{max(seconds):.2f} s; split: {split_parts:.2f} times the parts in {split_seconds:.2f} times the seconds"
    )
