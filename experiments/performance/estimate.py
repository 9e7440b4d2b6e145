"""Estimated against measured peak memory over random configurations.

A configuration is a graph, a kind of model, layers, widths and heads, precision, dropout, norm, an optimizer,
fanouts, a number of seeds and a number of micro-batches, all drawn from one seeded generator. Measured is the peak of
`profile_epoch`, by micro-batch and for the optimizer's step; estimated is `estimate_memory` of the same. The error of a
configuration is that of the micro-batch farthest off.
"""

import random
import statistics
import time
import warnings
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import workbench as wb
from experiments.performance.graphs import power_law_graph, real_graph
from workbench.core.graph import Graph
from workbench.memory.estimate import estimator_for
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
CASES = 360
PLAN_MARGIN = 0.02
"""That of `plan_micro_batches`."""
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


@cache
def _graph(name: str) -> tuple[Graph, Tensor]:
    found = real_graph(name)
    graph = power_law_graph(20_000, 280_000) if found is None else found[0]
    return graph, graph.indptr.diff().nonzero()[:, 0]


def draw_case(rng: random.Random, names: list[str]) -> dict[str, Any]:
    """One configuration."""
    kind, layers = rng.choice(MODEL_KINDS), rng.randint(1, 5)
    heads = rng.choice([1, 2, 4]) if kind == "gat" else 1
    return {
        "graph": rng.choice(names),
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


def _prepare(case: dict[str, Any]) -> tuple[Any, list[wb.MiniBatch], torch.optim.Optimizer]:
    graph, nodes = _graph(case["graph"])
    case["num_layers"] = len(case["fanouts"])
    case["num_seeds"] = min(case["num_seeds"], len(nodes))
    seeds = nodes[
        torch.randperm(len(nodes), generator=torch.Generator().manual_seed(case["seed"]))[: case["num_seeds"]]
    ]
    batch = wb.NeighborSampler(case["fanouts"], seed=case["seed"]).sample(graph, seeds)
    names = ("in_dim", "hidden_dim", "out_dim", "num_layers", "heads", "norm", "dropout", "seed")
    model = wb.build_model(case["kind"], **{name: case[name] for name in names}).to(getattr(torch, case["dtype"]))
    optimizer = _OPTIMIZERS[case["optimizer"]](model.parameters())
    parts = min(case["num_parts"], case["num_seeds"])
    micro = batch.split(wb.partition_batch(batch, parts, method="random", seed=case["seed"]))
    return model, micro, optimizer


def _measure(case: dict[str, Any]) -> dict[str, Any] | None:
    """The row of a configuration; None if it would need too much."""
    model, micro, optimizer = _prepare(case)
    start = time.perf_counter()
    estimate = estimator_for(model, micro[0], optimizer=optimizer)
    estimates = [estimate(mb, accumulating=position > 0) for position, mb in enumerate(micro)]
    seconds = (time.perf_counter() - start) / len(micro)
    if max(e.peak_bytes for e in estimates) > _MOST_BYTES:
        return None
    num_nodes = _graph(case["graph"])[0].num_nodes
    x = torch.zeros(1, case["in_dim"], dtype=getattr(torch, case["dtype"])).expand(num_nodes, -1)
    y = torch.arange(num_nodes) % case["out_dim"]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "layers|norms")  # batch statistics differ by micro-batch, memory does not
        profile = profile_epoch(model, [micro], x, y, cross_entropy, optimizer)
    return {**case, **_errors(estimates, profile), "estimate_seconds": seconds}


def _errors(estimates: list[wb.MemoryEstimate], profile: wb.EpochProfile) -> dict[str, Any]:
    expected = [max(e.phase_bytes["forward"], e.phase_bytes["backward"]) for e in estimates]
    pairs = list(zip(expected, profile.part_peak_bytes, strict=True))
    pairs.append((max(e.phase_bytes["step"] for e in estimates), profile.phase_peak_bytes["step"]))
    pairs.append((max(e.peak_bytes for e in estimates), profile.peak_bytes or 0))
    worst = max(pairs[:-2] + pairs[-1:], key=lambda pair: abs(pair[0] / pair[1] - 1))
    return {
        "estimated_bytes": pairs[-1][0],
        "measured_bytes": pairs[-1][1],
        "peak_error": pairs[-1][0] / pairs[-1][1] - 1,
        "worst_error": worst[0] / worst[1] - 1,
        "step_error": pairs[-2][0] / pairs[-2][1] - 1,
    }


def run(quick: bool = False) -> list[dict[str, Any]]:
    """One row a configuration."""
    rng = random.Random(0)
    names = [name for name in GRAPHS if real_graph(name) is not None] if not quick else []
    rows: list[dict[str, Any]] = []
    while len(rows) < (20 if quick else CASES):
        row = _measure(draw_case(rng, names or ["power-law"]))
        if row is not None:
            rows.append(row)
    return rows


def summary(rows: list[dict[str, Any]]) -> str:
    """Errors over all configurations, and by kind."""
    lines = [_line("all", rows)]
    return "\n".join(lines + [_line(kind, [r for r in rows if r["kind"] == kind]) for kind in MODEL_KINDS])


def _line(name: str, rows: list[dict[str, Any]]) -> str:
    if not rows:
        return f"{name}: none"
    errors = [row["worst_error"] for row in rows]
    sizes = [abs(error) for error in errors]
    seconds = statistics.median(row["estimate_seconds"] for row in rows)
    return (
        f"{name}: {len(rows)} configurations; error median {statistics.median(sizes):.3%}, most {max(sizes):.3%}, "
        f"from {min(errors):+.3%} to {max(errors):+.3%}, with a plan's margin of {PLAN_MARGIN:.0%} from "
        f"{(1 + min(errors)) * (1 + PLAN_MARGIN) - 1:+.3%}; {seconds * 1e6:.0f} µs a micro-batch"
    )
