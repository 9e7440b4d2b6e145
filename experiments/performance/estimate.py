"""Estimated beside measured peak memory of the library's models, over random configurations.

A configuration is a graph, a kind of model, layers, widths and heads, precision, dropout, norm, an optimizer, fanouts,
a number of seeds and a number of micro-batches, all drawn by one seeded generator. The peak of `profile_epoch` is
compared with `estimate_memory`, per micro-batch and for the optimizer's step. `worst_error` is the error of the
micro-batch that is farthest off.
"""

import random
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from experiments.performance.cases import Case, CasesPoint, as_row, case_graph, nodes_with_neighbors, random_nodes
from experiments.performance.estimate_errors import error_summary
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.memory.estimator import estimator_for
from workbench.memory.training_setup import TrainingSetup
from workbench.nn.model import MODEL_KINDS
from workbench.training.profile import profile_epoch

GRAPHS = (
    "amazon-computers",
    "citeseer",
    "cnr-2000",
    "coauthor-cs",
    "cora",
    "dblp-2010",
    "ogbn-arxiv",
    "pubmed-nofeat",
    "soc-epinions1",
    "tolokers",
    "uk-2007-05-100k",
)
PLAN_MARGIN = 0.02
"""That of `plan_micro_batches`."""
MOST, MEDIAN = 0.03, 0.001
_MOST_BYTES = 3 << 30
_OPTIMIZERS = {
    "adam": torch.optim.Adam,
    "adam foreach": partial(torch.optim.Adam, foreach=True),
    "adam single": partial(torch.optim.Adam, foreach=False),
    "adamw": torch.optim.AdamW,
    "adam decay amsgrad": partial(torch.optim.Adam, weight_decay=0.01, amsgrad=True),
    "sgd": partial(torch.optim.SGD, lr=0.1),
    "sgd momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
}


class Config(CasesPoint):
    """A range of the random configurations of one graph."""


def run(config: Config) -> Iterator[dict[str, Any]]:
    """One row per configuration whose estimate is at most 3 GiB."""
    for case in config.cases(sequence, GRAPHS):
        row = _measure(case)
        if row is not None:
            yield row


def sequence(rng: random.Random, graphs: Sequence[str]) -> Iterator[Case]:
    """Random configurations without end.

    Args:
        rng: that draws.
        graphs: names to draw from.
    """
    while True:
        kind, layers = rng.choice(MODEL_KINDS), rng.randint(1, 5)
        heads = rng.choice([1, 2, 4]) if kind == "gat" else 1
        yield {
            "graph": rng.choice(graphs),
            "kind": kind,
            "num_layers": layers,
            "in_dim": rng.choice([8, 32, 100, 128, 300]),
            "hidden_dim": rng.choice([8, 16, 32, 64, 128, 256]),
            "out_dim": rng.choice([2, 7, 40, 172]),
            "heads": heads,
            "norm": rng.choice([None, None, "batch", "layer"]),
            "dropout": rng.choice([0.0, 0.0, 0.5]),
            "dtype": rng.choice(["float32", "float32", "bfloat16"]),
            "optimizer": rng.choice(list(_OPTIMIZERS)),
            "fanouts": [rng.choice([1, 2, 5, 10, 25]) for _ in range(layers)]
            if rng.random() < 0.9
            else [-1] * min(layers, 2),
            "num_seeds": int(10 ** rng.uniform(1, 4)),
            "num_parts": rng.choice([1, 1, 2, 4, 8]),
            "seed": rng.randrange(10**6),
        }


def _prepare(case: Case) -> tuple[Any, wb.MiniBatch, list[wb.MiniBatch], torch.optim.Optimizer]:
    seeds = random_nodes(nodes_with_neighbors(case["graph"]), case["num_seeds"], seed=case["seed"])
    case |= {"num_layers": len(case["fanouts"]), "num_seeds": len(seeds)}
    batch = wb.NeighborSampler(case["fanouts"], seed=case["seed"]).sample(case_graph(case["graph"]), seeds)
    names = ("in_dim", "hidden_dim", "out_dim", "num_layers", "heads", "norm", "dropout", "seed")
    model = wb.build_model(case["kind"], **{name: case[name] for name in names}).to(getattr(torch, case["dtype"]))
    optimizer = _OPTIMIZERS[case["optimizer"]](model.parameters())
    parts = min(case["num_parts"], case["num_seeds"])
    micro = batch.split(wb.partition_batch(batch, parts, method="random", seed=case["seed"]))
    return model, batch, micro, optimizer


def _measure(case: Case) -> dict[str, Any] | None:
    """The row of a configuration; None if its estimate is too large to be measured."""
    model, batch, micro, optimizer = _prepare(case)
    start = time.perf_counter()
    estimate = estimator_for(TrainingSetup(model, optimizer=optimizer), batch)
    estimates = [estimate(mb, accumulating=position > 0) for position, mb in enumerate(micro)]
    seconds = (time.perf_counter() - start) / len(micro)
    if max(e.peak_bytes for e in estimates) > _MOST_BYTES:
        return None
    num_nodes = case_graph(case["graph"]).num_nodes
    x = torch.zeros(1, case["in_dim"], dtype=getattr(torch, case["dtype"])).expand(num_nodes, -1)
    y = torch.arange(num_nodes) % case["out_dim"]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "layers|norms")  # batch statistics differ by micro-batch, memory does not
        profile = profile_epoch(model, [micro], x, y, cross_entropy, optimizer)
    return {**as_row(case), **_errors(estimates, profile), "estimate_seconds": seconds}


def _errors(estimates: list[wb.MemoryEstimate], profile: wb.training.EpochProfile) -> dict[str, Any]:
    expected = [max(e.phase_bytes["forward"], e.phase_bytes["backward"]) for e in estimates]
    parts = list(zip(expected, profile.part_peak_bytes, strict=True))
    step = max(e.phase_bytes["step"] for e in estimates), profile.phase_peak_bytes["step"]
    peak = max(e.peak_bytes for e in estimates), profile.peak_bytes or 0
    return {
        "estimated_bytes": peak[0],
        "measured_bytes": peak[1],
        "peak_error": _error(*peak),
        "worst_error": max((_error(*pair) for pair in [*parts, peak]), key=abs),
        "step_error": _error(*step),
    }


def _error(estimated: int, measured: int) -> float:
    return estimated / measured - 1


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    off: Any = table.set_index(["graph", "kind", "case_seed"]).worst_error.abs()
    return Title("Estimated peak memory is at most {off.most:.2%} off", off=off)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import error_dots

    batch = (table.num_parts == 1).map({True: "whole batch", False: "micro-batches"})
    return error_dots(
        table.assign(batch=batch, panel=""),
        x="kind",
        group="batch",
        facet="panel",
        error="worst_error",
        within=MOST,
        title=title(table, reported).text,
        subtitle=f"a dot for the worst micro-batch of each of {len(table)} random configurations; shaded: {MOST:.0%}",
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = table.assign(off=table.worst_error.abs(), covered=(1 + table.worst_error) * (1 + PLAN_MARGIN) - 1)
    by = ["graph", "kind", "case_seed"]
    return [
        claims.within(
            "within-3-percent", "no micro-batch is more than 3 % off", rows, value="off", by=by, most=MOST, form=".2%"
        ),
        claims.median_within(
            "median-0.1-percent", "the median is 0.1 % off", rows, value="off", by=by, most=MEDIAN, form=".3%"
        ),
        claims.within(
            "margin-covers",
            "with a plan's margin of 2 % no estimate is more than 1 % too low",
            rows,
            value="covered",
            by=by,
            least=-0.01,
            form="+.2%",
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Errors of the worst micro-batches and the median time of an estimate, over all models and by kind."""
    found = error_summary("estimated peak of the library's layers", table, error="worst_error", by="kind")
    seconds = table.estimate_seconds
    return found.assign(estimate_seconds=[seconds.median(), *seconds.groupby(table.kind).median()])
