"""Training goes on where memory runs out, as if it had not: the oracle is the same step without the fault."""

import copy
import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.partitioners import skip_without_library
from tests.strategies import random_graph, random_minibatch
from tests.training.faults import WORK, FailAt, cpu_allocator_error, out_of_memory
from tests.training.faulty import FEATURES, LABELS, Faulty, above, assert_same, faulty, nothing, run
from tests.training.toys import PlainModel, gradients, toy_batch
from workbench.core.errors import CapacityError, PartitionError
from workbench.core.limit import limit_memory
from workbench.core.meter import PeakMeter, measure_peak
from workbench.core.minibatch import MiniBatch
from workbench.core.stopwatch import Stopwatch
from workbench.nn.model import build_model
from workbench.partition.batch import PARTITION_METHODS, partition_batch
from workbench.training import recover as recover_module
from workbench.training.recover import Recovery, is_out_of_memory
from workbench.training.step import train_step

KINDS = ("sage-mean", "sage-lstm", "gat", "gin")
X = torch.linspace(-9, 9, 720, dtype=torch.float64).sin().view(120, 6)
Y = torch.where(torch.arange(120) % 3 == 0, -1, torch.arange(120) % 4)
BATCH = random_minibatch(
    random_graph(120, 900, seed=5, edge_weight=torch.float64), fanouts=(4, 3), num_seeds=24, seed=2, step=11
)
MICRO = BATCH.split(torch.tensor([0] * 9 + [1] * 15))


class Splits(list):
    """Remembers what was cut."""

    def __call__(self, mb: MiniBatch, parts: list[MiniBatch], error: Exception) -> None:
        self.append((mb, parts, error))


@cache
def trained(kind: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model whose optimizer has state."""
    sizes = {"in_dim": 6, "hidden_dim": 8, "out_dim": 4, "num_layers": 2}
    model = build_model(kind, **sizes, dropout=0.5, norm="layer", heads=2 if kind == "gat" else 1, seed=4).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train_step(model, MICRO, X, Y, F.cross_entropy, optimizer)
    return model, optimizer


def step(
    kind: str, faults: FailAt | None = None, recover: Recovery | None = None, micro: Any = MICRO
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, gradients and parameters after a step from always the same start."""
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
def test_without_faults_nothing_differs(kind: str) -> None:
    assert all(torch.equal(a, b) for a, b in zip(step(kind, recover=Recovery()), expected(kind), strict=True))


@pytest.mark.parametrize(("kind", "every"), [("sage-mean", 1), ("sage-lstm", 23), ("gat", 5), ("gin", 3)])
def test_any_allocation_may_fail(kind: str, every: int) -> None:
    """Forward, backward, in Python or in the engine; nothing of the attempt is left, though nothing was collected."""
    gc.collect()
    gc.disable()
    try:
        for position in range(0, num_allocations(kind), every):
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


@settings(max_examples=40)
@given(data=st.data())
def test_faults_may_repeat(data: st.DataObject) -> None:
    """Also in the parts, in the parts of parts and in the next micro-batch."""
    kind = data.draw(st.sampled_from(("sage-mean", "gat", "gin")))
    positions = data.draw(st.sets(st.integers(0, 2 * num_allocations(kind)), min_size=2, max_size=4))
    method = data.draw(st.sampled_from(("auto", "range", "random", "metis", "reg")))
    splits = Splits()
    recover = Recovery(parts=data.draw(st.integers(2, 3)), method=method, seed=7, on_split=splits)
    faults = FailAt(positions, error=data.draw(st.sampled_from((out_of_memory, cpu_allocator_error, MemoryError))))
    try:
        ours = step(kind, faults, recover)
    except (MemoryError, RuntimeError):  # struck a seed that was alone already
        assert min(part.num_seeds for _, parts, _ in splits for part in parts) == 1
        return
    assert faults.refused == len(splits)
    assert_same(ours, expected(kind))


def wide_step(kind: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """A step whose activations are most of its memory, without a step of the optimizer."""
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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_on_a_gpu(kind: str) -> None:
    """A batch of tens of megabytes, since CUDA's allocator takes memory in segments of 2 MiB and more."""
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
    capacity = measure_peak(run, device="cuda") * 2 // 3
    optimizer.zero_grad()
    assert not splits
    with limit_memory(capacity, device="cuda"):
        ours = run()
    assert splits
    assert_same(ours, expected)


@pytest.mark.parametrize("where", ["forward", "backward"])
@settings(max_examples=25)
@given(limit=st.integers(1, 6), parts=st.integers(2, 4), cuts=st.integers(1, 5))
def test_cut_until_it_fits(where: str, limit: int, parts: int, cuts: int) -> None:
    whole, ours, splits = faulty(nothing), faulty(above(limit, where)), Splits()
    mb = toy_batch()
    expected = run(whole, mb)
    loss = run(ours, mb.split(torch.arange(13) % cuts), Recovery(parts=parts, method="range", on_split=splits))
    assert_same((loss, gradients(ours)), (expected, gradients(whole)))
    assert all(part.num_seeds > limit for part, _, _ in splits)
    assert all(1 < len(made) <= parts for _, made, _ in splits)


def test_what_on_split_is_told() -> None:
    splits, mb = Splits(), toy_batch()
    micro = mb.split(torch.arange(13) % 2)
    run(faulty(above(3, "backward")), micro, Recovery(on_split=splits, method="range"))
    assert splits[0][0] is micro[0] and splits[1][0] is splits[0][1][0]
    for cut, parts, error in splits:
        assert sorted(torch.cat([p.seeds for p in parts]).tolist()) == sorted(cut.seeds.tolist())
        assert str(error) == "no room" and error.__traceback__ is error.__context__ is None
        for part in parts:  # as if it had come from the batch at once
            assert torch.equal(mb.node_ids[part.parent], part.node_ids)
            assert part.step == mb.step


def test_parts_of_a_whole_batch_have_it_as_parent() -> None:
    splits, mb = Splits(), toy_batch()
    run(faulty(above(7, "forward")), mb, Recovery(on_split=splits))
    assert all(torch.equal(mb.node_ids[part.parent], part.node_ids) for part in splits[0][1])


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_one_seed_that_does_not_fit(where: str) -> None:
    """The micro-batches before it stay added, once; buffers are as before."""
    model, whole, mb = faulty(above(0, where)), faulty(nothing), toy_batch()
    calls = torch.zeros(())
    model.register_buffer("calls", calls)
    done, last = mb.split(torch.tensor([0] * 12 + [1]))
    model.fault = nothing
    run(model, done)
    before = [p.grad for p in model.parameters()]
    run(whole, done)
    model.fault = lambda here, n: (calls.add_(1), above(0, where)(here, n))
    with pytest.raises(torch.OutOfMemoryError) as caught:
        run(model, last, Recovery())
    assert "one seed" in caught.value.__notes__[0]
    assert all(p.grad is grad for p, grad in zip(model.parameters(), before, strict=True))
    assert torch.equal(gradients(model), gradients(whole))
    assert calls == 0
    with pytest.raises(torch.OutOfMemoryError):
        run(model, mb, Recovery())


def test_no_step_is_taken_where_one_seed_does_not_fit() -> None:
    model = faulty(above(0, "backward"))
    optimizer = torch.optim.Adam(model.parameters())
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(torch.OutOfMemoryError):
        train_step(model, toy_batch(), FEATURES, LABELS, F.cross_entropy, optimizer, recover=Recovery())
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert not optimizer.state


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("error", [ValueError, RuntimeError, KeyboardInterrupt])
def test_other_errors_pass(error: type[BaseException], where: str) -> None:
    """The very same, and gradients are as before the micro-batch."""
    raised = error("mat1 and mat2 shapes cannot be multiplied")

    def fault(here: str, num_seeds: int) -> None:
        if here == where and num_seeds == 6:
            raise raised

    model, splits = faulty(fault), Splits()
    first, second = toy_batch().split(torch.tensor([0] * 7 + [1] * 6))
    with pytest.raises(error) as caught:
        run(model, [first, second], Recovery(on_split=splits))
    assert caught.value is raised
    assert not splits
    expected = faulty(nothing)
    run(expected, first)
    assert torch.equal(gradients(model), gradients(expected))


def test_what_says_that_memory_ran_out() -> None:
    for error in (out_of_memory(), cpu_allocator_error(), MemoryError(), CapacityError()):
        assert is_out_of_memory(error)
    for error in (RuntimeError("CUDA error: device-side assert triggered"), ValueError("can't allocate memory")):
        assert not is_out_of_memory(error)
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_the_machines_own_error_is_recovered_from() -> None:
    model, whole = faulty(nothing), faulty(nothing)
    model.fault = lambda where, n: torch.empty(1 << 60 if n > 5 else 1, dtype=torch.uint8)
    run(model, toy_batch(), Recovery())
    run(whole, toy_batch())
    assert_same((gradients(model),), (gradients(whole),))


class Noisy(nn.Module):
    """Draws random numbers and keeps statistics, both in place and by putting another tensor in place."""

    def __init__(self, fault: Callable[[str, int], object] = nothing) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.inner, self.norm, self.drop = Faulty(fault), nn.BatchNorm1d(4, dtype=torch.float64), nn.Dropout(0.5)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("unused", None)

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        self.seen = self.seen + 1
        return self.inner(blocks, self.drop(self.norm(x)))


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_buffers_and_random_state_are_put_back(where: str) -> None:
    """Then the attempt leaves no trace: the result is to the bit that of the parts alone, trained from the start."""
    ours, theirs, splits = Noisy(above(4, where)), Noisy(), Splits()
    torch.manual_seed(8)
    with pytest.warns(RuntimeWarning, match="statistics from each micro-batch"):
        loss = run(ours, toy_batch(), Recovery(method="range", on_split=splits))
    random = torch.get_rng_state()
    order = [part for _, parts, _ in splits[1:] for part in parts]
    assert [part.num_seeds for part in order] == [4, 3, 3, 3]
    torch.manual_seed(8)
    with pytest.warns(RuntimeWarning, match="statistics from each micro-batch"):
        expected = run(theirs, order)
    assert torch.equal(loss, expected)
    assert torch.equal(gradients(ours), gradients(theirs))
    assert all(torch.equal(a, b) for a, b in zip(ours.buffers(), theirs.buffers(), strict=True))
    assert ours.seen == 4
    assert torch.equal(random, torch.get_rng_state())


def test_batch_norm_warns_when_a_batch_is_cut() -> None:
    run(Noisy(), toy_batch(), Recovery())  # warnings are errors here
    with pytest.warns(RuntimeWarning, match="statistics from each micro-batch"):
        run(Noisy(above(8, "forward")), toy_batch(), Recovery())


def test_phases_of_attempts_and_of_parts() -> None:
    events = []

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        assert not events or events[-1].startswith("/")
        events.append(name)
        try:
            yield
        finally:
            events.append(f"/{name}")

    run(faulty(above(7, "backward")), toy_batch(), Recovery(), phase=phase)
    assert [e for e in events if e[0] != "/"] == [*WORK, *WORK, *WORK]
    events.clear()
    run(faulty(above(7, "forward")), toy_batch(), Recovery(), phase=phase)
    assert [e for e in events if e[0] != "/"] == [*WORK[:3], *WORK, *WORK]


def test_data_parallel_models_are_refused() -> None:
    model: Any = PlainModel()
    model.no_sync = nullcontext
    with pytest.raises(ValueError, match="recover can't serve PlainModel"):
        run(model, toy_batch(), Recovery())


def test_edge_weights_that_learn_are_refused() -> None:
    mb = toy_batch()
    weights = torch.ones(mb.blocks[0].num_edges, requires_grad=True)
    learned = replace(mb, blocks=(replace(mb.blocks[0], edge_weight=weights), mb.blocks[1]))
    with pytest.raises(ValueError, match="edge weights that learn"):
        run(faulty(nothing), learned, Recovery())


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"method": "best"}, ValueError, "method 'best' is not known"),
        ({"parts": 1}, ValueError, "parts is 1"),
        ({"seed": "x"}, ValueError, "seed is 'x'; it must be a whole number"),
        ({"seed": 0.5}, ValueError, "seed is 0.5"),
        (
            {"method": "cluster"},
            ValueError,
            "method is 'cluster' and node_parts is not given; method 'cluster' needs them",
        ),
        (
            {"method": "reg", "node_parts": torch.zeros(40).long()},
            ValueError,
            "method is 'reg' and node_parts is given",
        ),
        ({"method": "cluster", "node_parts": torch.zeros(40)}, TypeError, "node_parts must be a tensor of torch.int64"),
    ],
)
def test_a_recovery_that_can_not_be(wrong: dict[str, Any], error: type[Exception], message: str) -> None:
    """It says so where it is made, not where memory has run out."""
    with pytest.raises(error, match=re.escape(message)):
        Recovery(**wrong)


@pytest.mark.parametrize("wrong", [True, False, 2, Recovery])
def test_what_is_no_recovery_is_refused_before_anything_happens(wrong: Any) -> None:
    model, optimizer = copy.deepcopy(trained("sage-mean"))
    before = gradients(model)
    with pytest.raises(TypeError, match=r"recover is .*; pass workbench.Recovery\(\)"):
        train_step(model, MICRO, X, Y, F.cross_entropy, optimizer, recover=wrong)
    with pytest.raises(TypeError, match=r"recover is .*; pass workbench.Recovery\(\)"):
        run(faulty(nothing), toy_batch(), wrong)
    assert torch.equal(gradients(model), before)


@pytest.mark.parametrize("method", PARTITION_METHODS)
def test_every_method_cuts(method: str) -> None:
    skip_without_library(method)
    node_parts = torch.arange(40) % 2 if method == "cluster" else None
    ours, theirs, splits = faulty(above(4, "backward")), faulty(nothing), Splits()
    run(ours, toy_batch(), Recovery(method=method, node_parts=node_parts, on_split=splits))
    run(theirs, toy_batch())
    assert_same((gradients(ours),), (gradients(theirs),))


@pytest.mark.parametrize("trouble", [ImportError, PartitionError, MemoryError, "one part"])
def test_a_method_that_can_not_cut_gives_way_to_range(monkeypatch: pytest.MonkeyPatch, trouble: Any) -> None:
    def partition(mb: MiniBatch, num_parts: int, *, method: str, **options: Any) -> Tensor:
        if method == "range":
            return partition_batch(mb, num_parts, method=method)
        if trouble == "one part":
            return torch.full((mb.num_seeds,), 3)
        raise trouble("no pymetis")

    monkeypatch.setattr(recover_module, "partition_batch", partition)
    splits = Splits()
    run(faulty(above(7, "forward")), toy_batch(), Recovery(on_split=splits))
    first, second = splits[0][1]
    assert first.seeds.max() < second.seeds.min()
    if trouble in (ImportError, PartitionError):  # what was asked for by name is not replaced
        with pytest.raises(trouble):
            run(faulty(above(7, "forward")), toy_batch(), Recovery(method="metis"))
