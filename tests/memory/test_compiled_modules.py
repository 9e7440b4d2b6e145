"""Compiled modules are refused by name, wherever their memory would be predicted or metered on the CPU."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.memory.measured import GRAPH, IN, build, sample
from workbench.memory.training_setup import TrainingSetup

BATCH = sample([4, 6], 30)
X, Y = torch.zeros(GRAPH.num_nodes, IN), torch.zeros(GRAPH.num_nodes, dtype=torch.int64)


def returned() -> nn.Module:
    return torch.compile(build("sage-mean", 2, 16), backend="eager")  # pyright: ignore[reportReturnType]


def in_place() -> nn.Module:
    model = build("sage-mean", 2, 16)
    model.compile(backend="eager")
    return model


def one_layer() -> nn.Module:
    model: Any = build("sage-mean", 2, 16)
    model.layers[1] = torch.compile(model.layers[1], backend="eager")
    return model


def profile(model: nn.Module, **options: Any) -> object:
    optimizer = torch.optim.SGD(model.parameters())
    return wb.profile_epoch(model, [[BATCH]], X, Y, cross_entropy, optimizer, warm_up=False, **options)


CALLS: dict[str, Callable[[nn.Module], object]] = {
    "estimate": lambda model: wb.estimate_memory(model, BATCH, in_dim=IN),
    "plan": lambda model: wb.plan_micro_batches(model, BATCH, memory=2**30, in_dim=IN),
    "costs": lambda model: wb.memory.byte_costs(TrainingSetup(model, in_dim=IN), BATCH),
    "profile": profile,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("compiled", "named"),
    [
        (returned, r"OptimizedModule is compiled .*model\._orig_mod"),
        (in_place, r"GNN is compiled .*copy\.deepcopy\(model\)"),
        (one_layer, r"GNN\.layers\.1 is compiled"),
    ],
)
def test_compiled_modules_are_refused(compiled: Callable[[], nn.Module], named: str, call: Callable) -> None:
    with pytest.raises(ValueError, match=named):
        call(compiled())


def test_the_original_is_estimated() -> None:
    plain = CALLS["estimate"](build("sage-mean", 2, 16))
    for original in (returned()._orig_mod, copy.deepcopy(in_place())):
        assert repr(CALLS["estimate"](original)) == repr(plain)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # the compiler itself reads .grad
def test_time_alone_is_profiled() -> None:
    torch.compiler.reset()
    assert profile(returned(), measure_memory=False)
