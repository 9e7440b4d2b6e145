"""OOM recovery of the optimizer step; the oracle is the same step without the fault, or no step at all."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.covering import every
from tests.training.faults import FailAt, cpu_allocator_error, out_of_memory
from tests.training.toys import PlainModel, relative_difference, toy_batch
from workbench.memory.training_setup import Recovery
from workbench.meter.limit import limit_memory
from workbench.meter.peak import measure_peak
from workbench.training.oom import step_with_oom_recovery
from workbench.training.step import train_step

X = torch.linspace(-1, 1, 160, dtype=torch.float64).sin().view(40, 4)
Y = torch.arange(40) % 3
MICRO = toy_batch().split(torch.arange(13) % 2)

Maker = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Maker] = {
    "adam": partial(torch.optim.Adam, lr=0.01),
    "adam foreach": partial(torch.optim.Adam, lr=0.01, foreach=True, weight_decay=0.1, amsgrad=True),
    "adam single": partial(torch.optim.AdamW, lr=0.01, foreach=False),
    "adam fused": partial(torch.optim.Adam, lr=0.01, fused=True),
    "nesterov": partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, foreach=True),  # changes gradients
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=False),
    "sgd": partial(torch.optim.SGD, lr=0.1),
}


class Nested(torch.optim.Optimizer):
    """State of nested lists of tensors and numbers, changing options, gradients scaled in place."""

    def __init__(self, groups: Any) -> None:
        super().__init__(groups, {"lr": 0.1, "steps": 0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["steps"] += 1
            group["seen"] = group["steps"]
            for p in group["params"]:
                past = self.state[p].setdefault("past", [])
                past.append(p.grad.clone())
                past[0].mul_(0.5)
                p.grad.mul_(2)
                p.grad = p.grad.clone()
                self.state[p]["norm"] = float(sum(g.norm() for g in past))
                p.sub_(sum(g * group["lr"] for g in past))


OPTIMIZERS["nested"] = Nested


def start(name: str, steps: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model after some steps, whose parameters are in two groups."""
    torch.manual_seed(3)
    model = PlainModel().double()
    first, second = model.layers
    optimizer = OPTIMIZERS[name]([{"params": list(first.parameters())}, {"params": second.parameters(), "lr": 0.02}])
    for _ in range(steps):
        train_step(model, MICRO, X, Y, F.cross_entropy, optimizer)
    return model, optimizer


def flat(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Any]:
    """Copies of everything that a step changes: parameters, gradients and state."""
    parameters = list(model.parameters())
    state = copy.deepcopy(optimizer.state_dict())
    return [[p.detach().clone() for p in parameters], [copy.deepcopy(p.grad) for p in parameters], state]


def assert_alike(ours: Any, theirs: Any, tolerance: float = 0.0) -> None:
    assert type(ours) is type(theirs)
    if isinstance(ours, Tensor):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs) or relative_difference(ours, theirs) <= tolerance
    elif isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert_alike(ours[key], theirs[key], tolerance)
    elif isinstance(ours, (list, tuple)):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert_alike(a, b, tolerance)
    else:
        assert ours == theirs or abs(ours - theirs) <= tolerance * abs(theirs)


def twin(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A deep copy including gradients, which torch does not copy."""
    both = copy.deepcopy((model, optimizer))
    for p, q in zip(both[0].parameters(), model.parameters(), strict=True):
        p.grad = copy.deepcopy(q.grad)
    return both


def step(name: str, steps: int, faults: FailAt | None = None) -> tuple[nn.Module, torch.optim.Optimizer]:
    model, optimizer = twin(*ready(name, steps))
    faults = faults or FailAt()
    with faults:
        train_step(model, MICRO, X, Y, F.cross_entropy, optimizer, phase=faults.watch, recover=Recovery())
    return model, optimizer


ready = cache(start)


@cache
def clean(name: str, steps: int) -> tuple[list[Any], int]:
    """The result of a step without faults, and its number of allocations, for the backup and the step itself."""
    faults = FailAt(phases=["step"])
    ours = flat(*step(name, steps, faults))
    model, optimizer = twin(*ready(name, steps))
    train_step(model, MICRO, X, Y, F.cross_entropy, optimizer)
    assert_alike(ours, flat(model, optimizer))
    return ours, faults.count


def num_copies(name: str, steps: int) -> int:
    model, optimizer = ready(name, steps)
    state = optimizer.state_dict()["state"].values()
    in_state = sum(isinstance(v, Tensor) + len(v if isinstance(v, list) else ()) for s in state for v in s.values())
    return 2 * len(list(model.parameters())) + in_state


@pytest.mark.parametrize("stride", every(9))
@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_any_allocation_of_the_step_may_fail(name: str, steps: int, stride: int) -> None:
    """Including while state is first created; some parameters and gradients have been updated by then."""
    expected, count = clean(name, steps)
    copies = num_copies(name, steps)
    assert count > copies or "adam" not in name or (name, steps) == ("adam fused", 2)
    for position in range(copies, count, stride):
        faults = FailAt([position], phases=["step"])
        ours = flat(*step(name, steps, faults))
        assert faults.refused == 1
        assert_alike(ours[0], expected[0], 1e-13)
        assert_alike(ours[2], expected[2], 1e-13)


@pytest.mark.parametrize("stride", every(5))
@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("name", ["adam foreach", "adam single", "nesterov", "nested"])
def test_a_step_that_fails_twice_changes_nothing(name: str, steps: int, stride: int) -> None:
    """State is bit-identical wherever the step fails, including in the backup."""
    before = twin(*ready(name, steps))
    train_step(*before[:1], MICRO, X, Y, F.cross_entropy, torch.optim.SGD(before[0].parameters(), lr=0.0))
    expected = flat(*before)
    for position in range(0, clean(name, steps)[1], stride):
        model, optimizer = twin(*before)
        faults = FailAt(range(position, 10_000), phases=["step"], error=cpu_allocator_error)
        with pytest.raises(RuntimeError, match="can't allocate memory") as caught, faults, faults.watch("step"):
            step_with_oom_recovery(optimizer)
        assert "No step was taken" in caught.value.__notes__[0]
        assert faults.refused >= (1 if position < num_copies(name, steps) else 2)
        assert_alike(flat(model, optimizer), expected)
        step_with_oom_recovery(optimizer)
        again, same = twin(*before)
        same.step()
        assert_alike(flat(model, optimizer), flat(again, same))


class Halfway(torch.optim.SGD):
    """Fails after some parameters are updated, once per given error."""

    def __init__(self, params: Any, errors: list[Exception]) -> None:
        super().__init__(params, lr=0.5)
        self.errors = errors
        self.foreach: list[Any] = []

    def step(self, closure: Any = None) -> None:
        self.foreach.append([group["foreach"] for group in self.param_groups])
        with torch.no_grad():
            for number, p in enumerate(p for group in self.param_groups for p in group["params"]):
                if number == 3 and self.errors:
                    raise self.errors.pop()
                p.sub_(p.grad)


def halfway(errors: list[Exception]) -> tuple[nn.Module, Halfway]:
    torch.manual_seed(3)
    model = PlainModel().double()
    optimizer = Halfway(model.parameters(), errors)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    return model, optimizer


def test_the_retry_disables_foreach() -> None:
    model, optimizer = halfway([out_of_memory()])
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.param_groups[0]["foreach"] = True
    step_with_oom_recovery(optimizer)
    assert optimizer.foreach == [[True], [False]]
    assert optimizer.param_groups[0]["foreach"] is True
    assert all(torch.equal(p, q - 1) for p, q in zip(model.parameters(), before, strict=True))


def test_other_errors_propagate() -> None:
    raised = RuntimeError("expected all tensors on one device")
    _, optimizer = halfway([raised])
    with pytest.raises(RuntimeError) as caught:
        step_with_oom_recovery(optimizer)
    assert caught.value is raised
    assert len(optimizer.foreach) == 1


def test_tensors_keep_their_identity() -> None:
    """Parameters, gradients, state and groups are the same objects as before, since others may refer to them."""
    model, optimizer = twin(*ready("adam foreach", 2))
    train_step(model, MICRO, X, Y, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.0))
    groups, state = list(optimizer.param_groups), optimizer.state
    tensors = [t for p in model.parameters() for t in (p, p.grad, *state[p].values())]
    faults = FailAt(range(num_copies("adam foreach", 2), 10_000), phases=["step"])
    with pytest.raises(torch.OutOfMemoryError), faults, faults.watch("step"):
        step_with_oom_recovery(optimizer)
    assert optimizer.state is state
    assert all(a is b for a, b in zip(optimizer.param_groups, groups, strict=True))
    now = [t for p in model.parameters() for t in (p, p.grad, *state[p].values())]
    assert all(a is b for a, b in zip(now, tensors, strict=True))


def test_a_budget_for_one_parameter_at_a_time() -> None:
    """The step exceeds the budget with foreach and fits without it."""
    nbytes, results = 4096 * 8, []
    for limited in (False, True):
        weights = nn.ParameterList(torch.linspace(-1, 1, 4096, dtype=torch.float64) + i for i in range(4))
        optimizer = torch.optim.Adam(weights, lr=0.1, foreach=True)
        for _ in range(3):
            for p in weights:
                p.grad = p.detach().sin()
            peak = measure_peak(partial(step_with_oom_recovery, twin(weights, optimizer)[1]))
            if limited:
                with limit_memory(peak - nbytes):
                    step_with_oom_recovery(optimizer)
            else:
                step_with_oom_recovery(optimizer)
        results.append([p.detach() for p in weights])
    assert_alike(results[1], results[0], 1e-13)


@pytest.mark.cuda
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}])
def test_a_failed_step_on_a_gpu_is_rolled_back(options: dict[str, Any]) -> None:
    model = nn.Linear(2048, 2048, device="cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, **options)
    for errors in ([], [out_of_memory()], [out_of_memory(), out_of_memory()]):
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        before, twice = flat(model, optimizer), len(errors) == 2
        other, same = twin(model, optimizer)
        same.step()

        def fail(*_: Any, errors: list[Exception] = errors) -> None:
            if errors:
                raise errors.pop()

        handle = optimizer.register_step_post_hook(fail)
        with pytest.raises(torch.OutOfMemoryError) if twice else nullcontext():
            step_with_oom_recovery(optimizer)
        handle.remove()
        assert not errors
        assert_alike(flat(model, optimizer), before if twice else flat(other, same), 0.0 if twice else 1e-6)
