"""Estimated beside measured peak memory of modules that the analytic model does not know.

The modules are ten models such as a user may bring (`own_models`). Each is traced on small parts of a random batch and
then estimated for that batch in 1, 4 and 16 micro-batches; the peak of `profile_epoch` is compared. `worst_error` is
the error of the micro-batch that is farthest off. `required_error` is the error of the capacity that a plan requires
for such a peak, with its margin and the error that the estimate states: below 0, a plan would not fit.
"""

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import pandas as pd
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from experiments.performance.cases import Case, CasesPoint, as_row, case_graph, random_nodes
from experiments.performance.estimate import PLAN_MARGIN
from experiments.performance.estimate_errors import error_summary
from experiments.performance.own_models import OWN_MODELS
from workbench.core.block import Block
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.memory.estimator import Estimator, estimator_for
from workbench.memory.search import Budget
from workbench.memory.training_setup import TrainingSetup
from workbench.training.profile import profile_epoch

GRAPHS = ("amazon-computers", "cora", "dblp-2010", "ogbn-arxiv", "soc-epinions1", "uk-2007-05-100k")
PARTS = (1, 4, 16)
DATA_DEPENDENT = "Thresholded"
MOST, EXACT = 0.04, 0.8
_MOST_NODES_AND_EDGES = 150_000
_MOST_ELEMENTS = 50_000_000


class Config(CasesPoint):
    """A range of the random configurations of one graph."""


def run(config: Config) -> Iterator[dict[str, Any]]:
    """One row per configuration and number of parts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "norms|.*statistics")  # batch statistics differ by micro-batch
        for case in config.cases(sequence, GRAPHS):
            yield from _rows(case)


def sequence(rng: random.Random, graphs: Sequence[str]) -> Iterator[Case]:
    """Random configurations without end, the models in turn; a model whose batch is too large draws again.

    Args:
        rng: that draws.
        graphs: names to draw from.
    """
    for position in count():
        model = OWN_MODELS[position % len(OWN_MODELS)].__name__
        case = _draw(rng, model, graphs)
        while _is_too_large(case):
            case = _draw(rng, model, graphs)
        yield case


def _draw(rng: random.Random, model: str, graphs: Sequence[str]) -> Case:
    layers = rng.choice([1, 2, 2, 3])
    fanouts = [rng.choice([5, 10, 25] if layers == 1 else [3, 5, 10]) for _ in range(layers)]
    return {
        "graph": rng.choice(graphs),
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


def _elements_of_padded(block: Block, hidden_dim: int) -> int:
    """Attention of two heads, or queries, keys and values."""
    width = int(block.in_degrees().max()) + 1
    return block.num_dst * width * max(2 * width, 3 * hidden_dim)


_DENSE: dict[str, Callable[[Block, int], int]] = {
    "Padded": _elements_of_padded,
    "AllToAll": lambda block, hidden_dim: block.num_dst * block.num_src,
}
"""Elements of the largest tensor of models whose tensors grow faster than the batch."""


def _is_too_large(case: Case) -> bool:
    elements = _DENSE.get(case["model"])
    if elements is None:
        return False
    return max(elements(block, case["hidden_dim"]) for block in _batch(dict(case)).blocks) > _MOST_ELEMENTS


def _batch(case: Case) -> wb.MiniBatch:
    """The batch, of a tenth of the seeds if it would be large; `num_seeds` of the case is set to its own."""
    graph, sampler = case_graph(case["graph"]), wb.NeighborSampler(case["fanouts"], seed=case["seed"])
    seeds = random_nodes(torch.arange(graph.num_nodes), graph.num_nodes, seed=case["seed"])
    case["num_seeds"] = min(case["num_seeds"], graph.num_nodes // 2)
    batch = sampler.sample(graph, seeds[: case["num_seeds"]])
    if sum(block.num_src + block.num_edges for block in batch.blocks) > _MOST_NODES_AND_EDGES:
        case["num_seeds"] = max(20, case["num_seeds"] // 10)
        batch = sampler.sample(graph, seeds[: case["num_seeds"]])
    return batch


def _rows(case: Case) -> Iterator[dict[str, Any]]:
    """A row for each number of parts."""
    batch = _batch(case)
    torch.manual_seed(case["seed"])
    kinds = {kind.__name__: kind for kind in OWN_MODELS}
    model = kinds[case["model"]](case["in_dim"], case["hidden_dim"], case["out_dim"], len(case["fanouts"]))
    model.to(getattr(torch, case["dtype"]))
    estimate = estimator_for(TrainingSetup(model, optimizer=case["optimizer"], in_dim=case["in_dim"]), batch)
    for parts in PARTS:
        yield {**as_row(case), **_compare(case, model, batch, estimate, parts)}


def _compare(
    case: Case, model: torch.nn.Module, batch: wb.MiniBatch, estimate: Estimator, num_parts: int
) -> dict[str, Any]:
    micro = batch.split(wb.partition_batch(batch, num_parts, method="random", seed=case["seed"]))
    estimates = [estimate(mb, accumulating=position > 0) for position, mb in enumerate(micro)]
    num_nodes = case_graph(case["graph"]).num_nodes
    x = torch.randn(num_nodes, case["in_dim"], dtype=getattr(torch, case["dtype"]))  # Thresholded depends on the values
    y = torch.zeros(num_nodes, dtype=torch.int64)
    kind = torch.optim.Adam if case["optimizer"] == "adam" else torch.optim.SGD
    profile = profile_epoch(model, [micro], x, y, cross_entropy, kind(model.parameters(), lr=0.01))
    expected = [max(e.phase_bytes["forward"], e.phase_bytes["backward"]) for e in estimates]
    errors = [there / measured - 1 for there, measured in zip(expected, profile.part_peak_bytes, strict=True)]
    estimated = max(e.peak_bytes for e in estimates)
    budget = Budget(0, PLAN_MARGIN, estimates[0].error or 0.0)
    assert profile.peak_bytes is not None
    return {
        "num_parts": num_parts,
        "estimated_bytes": estimated,
        "measured_bytes": profile.peak_bytes,
        "peak_error": estimated / profile.peak_bytes - 1,
        "worst_error": max(errors, key=abs),
        "stated_error": estimates[0].error,
        "required_error": max(map(budget.required, estimates)) / profile.peak_bytes - 1,
    }


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    off: Any = table.set_index(["model", "graph", "case_seed", "num_parts"]).peak_error.abs()
    return Title("The traced estimate of the peak is at most {off.most:.2%} off", off=off)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import error_dots

    return error_dots(
        table.assign(parts=table.num_parts.map("K = {}".format), panel=""),
        x="model",
        group="parts",
        facet="panel",
        error="peak_error",
        within=MOST,
        title=title(table, reported).text,
        subtitle=f"a dot for each of {len(table)} random batches in K micro-batches; shaded: {MOST:.0%}",
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    by = ["model", "graph", "case_seed", "num_parts"]
    rows = table.assign(off=table.peak_error.abs())
    exact = pd.DataFrame({"over": ["all cases"], "share": [(rows.off == 0).mean()]})
    data, others = (rows[(rows.model == DATA_DEPENDENT) == wanted] for wanted in (True, False))
    required = {"value": "required_error", "by": by, "least": 0, "form": "+.2%"}
    findings = [
        claims.within(
            "within-4-percent", "no peak is more than 4 % off", rows, value="off", by=by, most=MOST, form=".2%"
        ),
        claims.within(
            "exact-in-most",
            "at least 80 % of the peaks are estimated to the byte",
            exact,
            value="share",
            by=["over"],
            least=EXACT,
            form=".0%",
        ),
    ]
    enough = "what a plan requires is enough"
    sides: dict[str, tuple[Any, str]] = {
        "required-is-enough": (others, f"{enough} for models whose sizes depend on the batch alone"),
        "required-is-enough-for-any-values": (data, f"{enough} for one that keeps messages by their values, too"),
    }
    return findings + [claims.within(name, said, rows, **required) for name, (rows, said) in sides.items() if len(rows)]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Errors of the peaks, and cases in which a plan requires too little, over all models and by model."""
    found = error_summary("estimated peak of modules of your own, traced", table, error="peak_error", by="model")
    low: Any = (table.required_error < 0).groupby(table.model).sum()
    return found.assign(too_low_for_a_plan=[int(low.sum()), *low])
