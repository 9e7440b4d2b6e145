"""OOM recovery is exact: injected faults and memory budgets, compared with the same step without faults."""

import copy
import gc
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import Tensor, nn

from tests.covering import every
from tests.strategies import random_graph, random_minibatch
from tests.training.faults import WORK, FailAt, cpu_allocator_error, out_of_memory
from tests.training.faulty import Splits, assert_same
from tests.training.toys import gradients
from workbench.memory.training_setup import Recovery
from workbench.meter.limit import limit_memory
from workbench.meter.peak import PeakMeter, measure_peak
from workbench.meter.stopwatch import Stopwatch
from workbench.nn.model import build_model
from workbench.partition.batch import partition_batch
from workbench.training.step import train_step

KINDS = ("sage-mean", "sage-lstm", "gat", "gin")
X = torch.linspace(-9, 9, 720, dtype=torch.float64).sin().view(120, 6)
Y = torch.where(torch.arange(120) % 3 == 0, -1, torch.arange(120) % 4)
BATCH = random_minibatch(
    random_graph(120, 900, seed=5, edge_weight=torch.float64), fanouts=(4, 3), num_seeds=24, seed=2, step=11
)
MICRO = BATCH.split(torch.tensor([0] * 9 + [1] * 15))


@cache
def trained(kind: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model after one step, so that its optimizer has state."""
    sizes: dict[str, Any] = {"in_dim": 6, "hidden_dim": 8, "out_dim": 4, "num_layers": 2}
    model = build_model(kind, **sizes, dropout=0.5, norm="layer", heads=2 if kind == "gat" else 1, seed=4).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train_step(model, MICRO, X, Y, F.cross_entropy, optimizer)
    return model, optimizer


def step(
    kind: str, faults: FailAt | None = None, recover: Recovery | None = None, micro: Any = MICRO
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, gradients and parameters after a step from the same initial state."""
    model, optimizer = copy.deepcopy(trained(kind))
    faults = faults or FailAt()
    with faults:
        loss = train_step(model, micro, X, Y, F.cross_entropy, optimizer, phase=faults.watch, recover=recover)
    return loss, gradients(model), torch.cat([p.detach().flatten() for p in model.parameters()])


@cache
def expected(kind: str) -> tuple[Tensor, Tensor, Tensor]:
    return step(kind)


@cache
def num_allocations(kind: str) -> int:
    faults = FailAt()
    step(kind, faults, Recovery())
    return faults.count


@pytest.mark.parametrize("kind", KINDS)
def test_without_faults_results_are_identical(kind: str) -> None:
    assert all(torch.equal(a, b) for a, b in zip(step(kind, recover=Recovery()), expected(kind), strict=True))


@pytest.mark.parametrize("stride", every(5))
@pytest.mark.parametrize(("kind", "step_of_kind"), [("sage-mean", 1), ("sage-lstm", 23), ("gat", 5), ("gin", 3)])
def test_any_allocation_may_fail(kind: str, step_of_kind: int, stride: int) -> None:
    """In the forward and backward pass; the attempt's tensors are freed without garbage collection."""
    gc.collect()
    gc.disable()
    try:
        for position in range(0, num_allocations(kind), step_of_kind * stride):
            splits = Splits()
            alive = []
            faults = FailAt([position])
            recover = Recovery(on_split=lambda *split, f=faults, s=splits, a=alive: (s(*split), a.append(f.alive)))
            ours = step(kind, faults, recover)
            assert faults.refused == len(splits) == 1
            assert alive == [0]
            assert_same(ours, expected(kind))
    finally:
        gc.enable()


@given(data=st.data())
def test_faults_may_repeat(data: st.DataObject) -> None:
    """Also in pieces, in pieces of pieces and in the next micro-batch."""
    kind = data.draw(st.sampled_from(("sage-mean", "gat", "gin")))
    positions = data.draw(st.sets(st.integers(0, 2 * num_allocations(kind)), min_size=2, max_size=4))
    method = data.draw(st.sampled_from(("auto", "range", "random", "metis", "reg")))
    splits = Splits()
    recover = Recovery(parts=data.draw(st.integers(2, 3)), method=method, seed=7, on_split=splits)
    faults = FailAt(positions, error=data.draw(st.sampled_from((out_of_memory, cpu_allocator_error, MemoryError))))
    try:
        ours = step(kind, faults, recover)
    except (MemoryError, RuntimeError):  # failed on a piece of one seed
        assert min(part.num_seeds for _, parts, _ in splits for part in parts) == 1
        return
    assert faults.refused == len(splits)
    assert_same(ours, expected(kind))


def wide_step(kind: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """A step whose memory is mostly activations, with a learning rate of 0."""
    graph = random_graph(1500, 9000, edge_weight=torch.float64)
    mb = random_minibatch(graph, fanouts=(4, 4), num_seeds=150)
    model = build_model(kind, in_dim=32, hidden_dim=16, out_dim=4, num_layers=2, dropout=0.5, seed=4).double()
    x, y = torch.randn(1500, 32, dtype=torch.float64), torch.arange(1500) % 4
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def run(num_parts: int = 1, **options: Any) -> tuple[Tensor, Tensor]:
        micro = mb.split(partition_batch(mb, num_parts, method="range"))
        optimizer.zero_grad()
        loss = train_step(model, micro, x, y, F.cross_entropy, optimizer, **options)
        return loss, gradients(model)

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_too_small_for_the_batch(kind: str) -> None:
    run, splits, watch = wide_step(kind), Splits(), Stopwatch()
    expected = run()
    whole, parts = measure_peak(run), measure_peak(lambda: run(8, recover=Recovery()))
    capacity = (whole + parts) // 2
    assert parts < 0.7 * whole
    with limit_memory(capacity), PeakMeter() as meter:
        ours = run(recover=Recovery(on_split=splits), phase=watch.phase)
    assert splits
    assert 0.5 * capacity < meter.peak_bytes <= capacity
    assert set(watch.seconds) == {*WORK, "step"}
    assert_same(ours, expected)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["sage-mean", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])])
def test_a_budget_on_a_gpu(kind: str) -> None:
    """A batch of tens of megabytes, since CUDA's allocator reserves segments of at least 2 MiB."""
    mb = random_minibatch(random_graph(20_000, 160_000), fanouts=(8, 8), num_seeds=4000)
    x, y = torch.randn(20_000, 64, dtype=torch.float64), torch.arange(20_000) % 4
    model = build_model(kind, in_dim=64, hidden_dim=64, out_dim=4, num_layers=2, dropout=0.5, seed=4).double().cuda()
    optimizer, splits = torch.optim.SGD(model.parameters(), lr=0.0), Splits()

    def run() -> tuple[Tensor, Tensor]:
        optimizer.zero_grad()
        loss = train_step(model, mb, x, y, F.cross_entropy, optimizer, recover=Recovery(on_split=splits))
        return loss, gradients(model)

    expected = run()
    optimizer.zero_grad()
    capacity = measure_peak(run, device="cuda") // 2  # a third may be workspace, which the limit leaves out
    optimizer.zero_grad()
    assert not splits
    with limit_memory(capacity, device="cuda"):
        ours = run()
    assert splits
    assert_same(ours, expected)
