"""Estimated against measured peak memory of modules that the analytic model does not know.

The modules are ten models of a user's own (`own_models`). Each is traced on small parts of a random batch and then
estimated for that batch in 1, 4 and 16 micro-batches; measured is the peak of `profile_epoch`. `worst_error` is that of
the micro-batch farthest off; `claim_error` is that of the capacity which a plan takes such a peak to need, with its
margin and the error that the estimate states: below 0, a plan would not fit.
"""

import random
import statistics
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import workbench as wb
from experiments.performance.estimate import PLAN_MARGIN
from experiments.performance.graphs import power_law_graph, real_graph
from experiments.performance.own_models import OWN_MODELS
from workbench.core.block import Block
from workbench.core.graph import Graph
from workbench.memory.estimate import Estimator, estimator_for
from workbench.memory.planning.room import Room
from workbench.training.profile import profile_epoch

GRAPHS = ("amazon-computers", "cora", "dblp-2010", "ogbn-arxiv", "soc-epinions1", "uk-2007-05-100k")
CONFIGURATIONS = 120
PARTS = (1, 4, 16)
_MOST_NODES_AND_EDGES = 150_000
_MOST_DENSE = 50_000_000


def _elements_of_padded(block: Block, hidden_dim: int) -> int:
    """Attention of two heads, or queries, keys and values."""
    width = int(block.in_degrees().max()) + 1
    return block.num_dst * width * max(2 * width, 3 * hidden_dim)


_DENSE: dict[str, Callable[[Block, int], int]] = {
    "Padded": _elements_of_padded,
    "AllToAll": lambda block, hidden_dim: block.num_dst * block.num_src,
}
"""Elements of the largest tensor, of models whose sizes grow faster than the batch."""


@cache
def _graph(name: str) -> Graph:
    found = real_graph(name)
    return power_law_graph(20_000, 280_000) if found is None else found[0]


def draw_case(rng: random.Random, model: str, names: list[str]) -> dict[str, Any]:
    """One configuration."""
    layers = rng.choice([1, 2, 2, 3])
    fanouts = [rng.choice([5, 10, 25] if layers == 1 else [3, 5, 10]) for _ in range(layers)]
    return {
        "graph": rng.choice(names),
        "model": model,
        "fanouts": [-1] if layers == 1 and rng.random() < 0.4 else fanouts,
        "num_seeds": rng.choice([200, 800, 2500] if layers < 3 else [100, 400]),
        "in_dim": rng.choice([8, 32, 100]),
        "hidden_dim": rng.choice([16, 32, 64]),
        "out_dim": rng.choice([3, 40]),
        "dtype": rng.choice(["float32", "float32", "float32", "float64"]),
        "optimizer": rng.choice(["adam", "sgd"]),
        "seed": rng.randrange(10**6),
    }


def _batch(case: dict[str, Any]) -> wb.MiniBatch:
    """Of fewer seeds where it would be large."""
    graph, sampler = _graph(case["graph"]), wb.NeighborSampler(case["fanouts"], seed=case["seed"])
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(case["seed"]))
    case["num_seeds"] = min(case["num_seeds"], graph.num_nodes // 2)
    batch = sampler.sample(graph, order[: case["num_seeds"]])
    if sum(block.num_src + block.num_edges for block in batch.blocks) > _MOST_NODES_AND_EDGES:
        case["num_seeds"] = max(20, case["num_seeds"] // 10)
        batch = sampler.sample(graph, order[: case["num_seeds"]])
    return batch


def _is_too_large(case: dict[str, Any], batch: wb.MiniBatch) -> bool:
    elements = _DENSE.get(case["model"])
    return elements is not None and max(elements(block, case["hidden_dim"]) for block in batch.blocks) > _MOST_DENSE


def _rows(case: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each number of parts; none for a dense model of a batch that is too large for it."""
    batch = _batch(case)
    if _is_too_large(case, batch):
        return []
    torch.manual_seed(case["seed"])
    kinds = {kind.__name__: kind for kind in OWN_MODELS}
    model = kinds[case["model"]](case["in_dim"], case["hidden_dim"], case["out_dim"], len(case["fanouts"]))
    model.to(getattr(torch, case["dtype"]))
    estimate = estimator_for(model, batch, in_dim=case["in_dim"], optimizer=case["optimizer"])
    return [{**case, **_compare(case, model, batch, estimate, parts)} for parts in PARTS]


def _compare(
    case: dict[str, Any], model: torch.nn.Module, batch: wb.MiniBatch, estimate: Estimator, num_parts: int
) -> dict[str, Any]:
    micro = batch.split(wb.partition_batch(batch, num_parts, method="random", seed=case["seed"]))
    estimates = [estimate(mb, accumulating=position > 0) for position, mb in enumerate(micro)]
    num_nodes = _graph(case["graph"]).num_nodes
    x = torch.randn(num_nodes, case["in_dim"], dtype=getattr(torch, case["dtype"]))  # Thresholded goes by the values
    y: Tensor = torch.zeros(num_nodes, dtype=torch.int64)
    kind = torch.optim.Adam if case["optimizer"] == "adam" else torch.optim.SGD
    profile = profile_epoch(model, [micro], x, y, cross_entropy, kind(model.parameters(), lr=0.01))
    expected = [max(e.phase_bytes["forward"], e.phase_bytes["backward"]) for e in estimates]
    errors = [there / measured - 1 for there, measured in zip(expected, profile.part_peak_bytes, strict=True)]
    estimated = max(e.peak_bytes for e in estimates)
    room = Room(0, PLAN_MARGIN, estimates[0].error or 0.0)
    assert profile.peak_bytes is not None
    return {
        "num_parts": num_parts,
        "estimated_bytes": estimated,
        "measured_bytes": profile.peak_bytes,
        "peak_error": estimated / profile.peak_bytes - 1,
        "worst_error": max(errors, key=abs),
        "stated_error": estimates[0].error,
        "claim_error": max(map(room.claim_of, estimates)) / profile.peak_bytes - 1,
    }


def run(quick: bool = False) -> list[dict[str, Any]]:
    """One row a configuration and number of parts."""
    rng = random.Random(0)
    names = [] if quick else [name for name in GRAPHS if real_graph(name) is not None]
    rows: list[dict[str, Any]] = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "norms|.*statistics")  # batch statistics differ by micro-batch
        for position in range(len(OWN_MODELS) if quick else CONFIGURATIONS):
            model = OWN_MODELS[position % len(OWN_MODELS)].__name__
            made: list[dict[str, Any]] = []
            while not made:
                made = _rows(draw_case(rng, model, names or ["power-law"]))
            rows += made
    return rows


def summary(rows: list[dict[str, Any]]) -> str:
    """Errors over all configurations, and by model."""
    names = sorted({row["model"] for row in rows})
    return "\n".join([_line("all", rows), *(_line(name, [r for r in rows if r["model"] == name]) for name in names)])


def _line(name: str, rows: list[dict[str, Any]]) -> str:
    peaks, worst, claims = ([row[f"{what}_error"] for row in rows] for what in ("peak", "worst", "claim"))
    return (
        f"{name}: {len(rows)} cases; peak off by {statistics.median(map(abs, peaks)):.2%} at the median, from "
        f"{min(peaks):+.2%} to {max(peaks):+.2%}, exact in {sum(error == 0 for error in peaks)}; worst part from "
        f"{min(worst):+.2%} to {max(worst):+.2%}; a plan's claim from {min(claims):+.2%}, too "
        f"low in {sum(error < 0 for error in claims)}"
    )
