"""Every public function that is passed a batch handles one with exchanges, or refuses it: none answers wrongly.

A new public function that accepts a batch fails `test_every_function_has_a_decision` until it is listed here.
"""

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, get_args, get_type_hints

import pytest
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
import workbench.plots
import workbench.widgets
from tests.public_names import NAMES as PUBLIC
from tests.strategies import random_graph, random_minibatch
from tests.training.cooperative import cooperative_batches
from workbench.core.conversions import BatchForms
from workbench.memory.betty import betty_terms

WHOLE = random_minibatch(random_graph(40, 200), fanouts=(3, 2), num_seeds=13)
HALO = cooperative_batches(WHOLE, torch.arange(40) % 2, 2)[0]
MODEL = wb.build_model("sage-mean", in_dim=4, hidden_dim=5, out_dim=3)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.0)
SETUP = wb.TrainingSetup(MODEL, cross_entropy, OPTIMIZER)
X, Y = torch.randn(40, 4), torch.arange(40) % 3
DATA = X, Y, cross_entropy, OPTIMIZER
PARTS = torch.zeros(HALO.num_seeds, dtype=torch.int64)


def accumulated() -> object:
    return wb.accumulate(MODEL, HALO, lambda mb: X[mb.node_ids], lambda out, mb: out.sum())


REFUSING: dict[str, Callable[[], object]] = {
    "MiniBatch.select": lambda: HALO.select([torch.tensor([0])]),
    "MiniBatch.split": lambda: HALO.split(PARTS),
    "MiniBatch.to_dgl": lambda: HALO.to_dgl(),
    "MiniBatch.to_pyg": lambda: HALO.to_pyg(),
    "Partitioner.prepare": lambda: wb.partition.Partitioner().prepare(HALO),
    "accumulate": accumulated,  # without forward=; with it, tests/training/test_exchanges.py
    "link_step": lambda: wb.link_step(
        MODEL,
        wb.nn.DotProduct(3),
        wb.links.EdgeBatch(HALO.seeds, PARTS, PARTS),
        HALO,
        X,
        wb.nn.softmax_pair_loss,
        OPTIMIZER,
    ),
    "check_exact": lambda: wb.check_exact(MODEL, HALO),
    "byte_costs": lambda: wb.memory.byte_costs(SETUP, HALO),
    "betty_terms": lambda: betty_terms(MODEL, HALO),
    "count_macrobatches": lambda: wb.macrobatch.count_macrobatches([HALO]),
    "InputHop.of": lambda: wb.macrobatch.InputHop.of(HALO),
    "plan_macrobatch": lambda: wb.macrobatch.plan_macrobatch([HALO], row_bytes=4, memory=9),
    "draw_cooperation": lambda: import_module("workbench.plots.batch_drawing").draw_cooperation(
        HALO, PARTS, read={}, again={}, link_bytes=torch.zeros(2, 2), title=""
    ),
    "draw_redundancy_graph": lambda: import_module("workbench.plots.heat_maps").draw_redundancy_graph(HALO, PARTS),
    "draw_micro_batches": lambda: import_module("workbench.plots.batch_drawing").draw_micro_batches(HALO, [HALO]),
    "estimate_memory": lambda: wb.estimate_memory(MODEL, HALO),
    "estimator_for": lambda: wb.memory.estimator_for(SETUP, HALO),
    "micro_batches": lambda: wb.micro_batches(HALO, 1),
    "partition_batch": lambda: wb.partition_batch(HALO, 1),
    "plan_micro_batches": lambda: wb.plan_micro_batches(MODEL, HALO, memory=2**40),
    "plan_sampler": lambda: wb.plan_sampler(MODEL, [HALO], memory=2**40),
    "SamplerPlan.micro_batches": lambda: wb.plan_sampler(MODEL, [WHOLE], memory=2**40).micro_batches(HALO),
    "plan_with": lambda: wb.memory.plan_with(wb.memory.estimator_for(SETUP, WHOLE), HALO, memory=2**40),
    "profile_epoch": lambda: wb.profile_epoch(MODEL, [[HALO]], *DATA),
    "reach_counts": lambda: wb.cooperative.reach_counts(HALO),
    "remote_rows": lambda: wb.macrobatch.remote_rows([HALO], torch.zeros(40, dtype=torch.int64), 0),
    "redundancy": lambda: wb.redundancy([HALO], HALO),
    "refine_parts": lambda: wb.partition.refine_parts(HALO, PARTS),
    "sampled_logits": lambda: wb.sampled_logits(MODEL, [(0, HALO)], X),
    "symmetric_norm": lambda: wb.nn.symmetric_norm(HALO),
    "train_step_with": lambda: wb.training.train_step_with(SETUP, HALO, X, Y),
    "train_epochs": lambda: list(wb.train_epochs(MODEL, lambda epoch: [[HALO]], *DATA, epochs=1)),
    "train_step": lambda: wb.train_step(MODEL, HALO, *DATA),
}

HANDLING = {
    "BatchLoss": "stores its arguments",
    "BatchLoss.__call__": "looks up the labels of owned seeds",
    "BatchLoss.of": "counts the labels of owned seeds",
    "FetchedBatch": "stores its arguments",
    "fetch_rows": "reads the rows of owned inputs and the labels of owned seeds",
    "pack_rows": "writes the rows of owned inputs",
    "read_ahead": "reads the rows of owned inputs",
    "ReadAhead": "reads the rows of owned inputs",
    "cooperative_work": "counts halos and owned nodes",
    "LearnedRows.add": "adds the gradients of owned inputs",
    "MiniBatch.from_pyg": "its argument is a batch of PyG",
    "MiniBatch.pin_memory": "copies exchanges too",
    "MiniBatch.to": "moves exchanges too",
    "MiniBatch.validate": "checks exchanges too",
    "Plan": "stores its arguments",
    "cooperative.train_step": "fills the halo: tests/distributed/test_on_ranks.py",
    "exchangers": "are what fills the halo",
    "shared_neighbors": "a part of draw_redundancy_graph, which refuses",
    "Recovery": "its callback receives micro-batches that were split",
    "stage": "fetches the rows of owned inputs",
    "window_fetches": "counts the rows of owned inputs",
    "false_negatives": "its batch is an EdgeBatch, which has no blocks",
    "TrainingSetup": "forward is the caller's",
}

NAMES = {"mb", "micro", "batch", "batches"}
"""Names of parameters that are a batch whatever their annotation (`Any`, say)."""


def public() -> Iterator[tuple[str, Any]]:
    """Public functions and, of public classes, constructors and public methods, by name."""
    modules = [import_module(f"workbench.plots.{module.name}") for module in iter_modules(workbench.plots.__path__)]
    found: dict[str, Any] = {}
    for name, (home, _) in PUBLIC.items():
        short = name.rpartition(".")[2]
        found[name if short in found else short] = getattr(home, short)
    found |= {name: getattr(workbench.widgets, name) for name in workbench.widgets.__all__}
    found |= {n: v for m in modules for n, v in vars(m).items() if getattr(v, "__module__", None) == m.__name__}
    for name, value in {**found, "betty_terms": betty_terms}.items():
        if inspect.isclass(value):
            yield name, value.__init__
            members = inspect.getmembers(value, callable)
            yield from ((f"{name}.{m}", f) for m, f in members if not m.startswith("_") or m == "__call__")
        elif callable(value):
            yield name, value


def accepts_a_batch(function: Any) -> bool:
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError, AttributeError):  # imported for type checkers only; written in C
        hints = dict(getattr(function, "__annotations__", {}))
    return any(name in NAMES or mentions_a_batch(hint) for name, hint in hints.items() if name != "return")


def mentions_a_batch(hint: Any) -> bool:
    if isinstance(hint, list):
        return any(map(mentions_a_batch, hint))
    return hint is wb.MiniBatch or "MiniBatch" in str(hint) or any(map(mentions_a_batch, get_args(hint)))


def test_every_function_has_a_decision() -> None:
    found = {name for name, function in public() if not name.startswith("_") and accepts_a_batch(function)}
    own = vars(wb.MiniBatch) | vars(BatchForms)
    methods = {f"MiniBatch.{m}" for m, f in own.items() if inspect.isfunction(f) and m[0] != "_"}
    assert found | methods == {*REFUSING, *HANDLING}


@pytest.mark.parametrize("name", REFUSING)
def test_a_batch_with_exchanges_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"the batch has 2 exchanges: its blocks read rows of other processes"):
        REFUSING[name]()


def test_counts_of_a_batch_with_exchanges() -> None:
    assert HALO.exchanges is not None
    assert HALO.num_inputs == len(HALO.node_ids) < HALO.num_sources == HALO.num_inputs + len(HALO.exchanges[0].halo_ids)
    assert WHOLE.num_inputs == WHOLE.num_sources


def test_labels_are_those_of_owned_seeds() -> None:
    loss = wb.BatchLoss.of(HALO, Y, cross_entropy)
    assert loss.weight == HALO.num_seeds < WHOLE.num_seeds
