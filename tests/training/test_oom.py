"""OOM recovery of micro-batches: splitting, rollback, errors and phases, with a model that fails on demand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import Tensor, nn

from tests.training.faults import WORK, cpu_allocator_error, out_of_memory
from tests.training.faulty import FEATURES, LABELS, Faulty, Splits, above, assert_same, faulty, nothing, run
from tests.training.toys import gradients, toy_batch
from workbench.core.errors import CapacityError
from workbench.memory.training_setup import Recovery
from workbench.training.oom import is_out_of_memory
from workbench.training.step import train_step


@pytest.mark.parametrize("where", ["forward", "backward"])
@given(limit=st.integers(1, 6), parts=st.integers(2, 4), cuts=st.integers(1, 5))
def test_splits_until_the_pieces_fit(where: str, limit: int, parts: int, cuts: int) -> None:
    whole, ours, splits = faulty(nothing), faulty(above(limit, where)), Splits()
    mb = toy_batch()
    expected = run(whole, mb)
    loss = run(ours, mb.split(torch.arange(13) % cuts), Recovery(parts=parts, method="range", on_split=splits))
    assert_same((loss, gradients(ours)), (expected, gradients(whole)))
    assert all(part.num_seeds > limit for part, _, _ in splits)
    assert all(1 < len(pieces) <= parts for _, pieces, _ in splits)


def test_on_split_receives_micro_batch_pieces_and_error() -> None:
    splits, mb = Splits(), toy_batch()
    micro = mb.split(torch.arange(13) % 2)
    run(faulty(above(3, "backward")), micro, Recovery(on_split=splits, method="range"))
    assert splits[0][0] is micro[0] and splits[1][0] is splits[0][1][0]
    for cut, parts, error in splits:
        assert sorted(torch.cat([p.seeds for p in parts]).tolist()) == sorted(cut.seeds.tolist())
        assert str(error) == "no room" and error.__traceback__ is error.__context__ is None
        for part in parts:  # as if split from the batch directly
            assert torch.equal(mb.node_ids[part.parent], part.node_ids)
            assert part.step == mb.step


def test_the_parent_of_the_pieces_of_a_batch_is_the_batch() -> None:
    splits, mb = Splits(), toy_batch()
    run(faulty(above(7, "forward")), mb, Recovery(on_split=splits))
    assert all(torch.equal(mb.node_ids[part.parent], part.node_ids) for part in splits[0][1])


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_single_seed_that_does_not_fit_raises(where: str) -> None:
    """Gradients of earlier micro-batches are kept; buffers are as before the failure."""
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


def test_no_step_is_taken_if_a_single_seed_does_not_fit() -> None:
    model = faulty(above(0, "backward"))
    optimizer = torch.optim.Adam(model.parameters())
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(torch.OutOfMemoryError):
        train_step(model, toy_batch(), FEATURES, LABELS, F.cross_entropy, optimizer, recover=Recovery())
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert not optimizer.state


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("error", [ValueError, RuntimeError, KeyboardInterrupt])
def test_other_errors_propagate(error: type[BaseException], where: str) -> None:
    """The same error object is raised, and gradients are as before the micro-batch."""
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


def test_oom_errors_are_recognised() -> None:
    for error in (out_of_memory(), cpu_allocator_error(), MemoryError(), CapacityError()):
        assert is_out_of_memory(error)
    for error in (RuntimeError("CUDA error: device-side assert triggered"), ValueError("can't allocate memory")):
        assert not is_out_of_memory(error)
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_recovers_from_a_real_allocator_error() -> None:
    model, whole = faulty(nothing), faulty(nothing)
    model.fault = lambda where, n: torch.empty(1 << 60 if n > 5 else 1, dtype=torch.uint8)
    run(model, toy_batch(), Recovery())
    run(whole, toy_batch())
    assert_same((gradients(model),), (gradients(whole),))


class Noisy(nn.Module):
    """Draws random numbers and updates buffers, both in place and by assignment."""

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
def test_buffers_and_random_state_are_rolled_back(where: str) -> None:
    """The result is bit-identical to training on the pieces from the start."""
    ours, theirs, splits = Noisy(above(4, where)), Noisy(), Splits()
    torch.manual_seed(8)
    with pytest.warns(RuntimeWarning, match="statistics of each micro-batch"):
        loss = run(ours, toy_batch(), Recovery(method="range", on_split=splits))
    random = torch.get_rng_state()
    order = [part for _, parts, _ in splits[1:] for part in parts]
    assert [part.num_seeds for part in order] == [4, 3, 3, 3]
    torch.manual_seed(8)
    with pytest.warns(RuntimeWarning, match="statistics of each micro-batch"):
        expected = run(theirs, order)
    assert torch.equal(loss, expected)
    assert torch.equal(gradients(ours), gradients(theirs))
    assert all(torch.equal(a, b) for a, b in zip(ours.buffers(), theirs.buffers(), strict=True))
    assert ours.seen == 4
    assert torch.equal(random, torch.get_rng_state())


def test_batch_norm_warns_when_a_batch_is_split() -> None:
    run(Noisy(), toy_batch(), Recovery())  # warnings are errors here
    with pytest.warns(RuntimeWarning, match="statistics of each micro-batch"):
        run(Noisy(above(8, "forward")), toy_batch(), Recovery())


def test_failed_attempts_and_pieces_enter_phases() -> None:
    events = []

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        assert not events or events[-1].startswith("/")
        events.append(name)
        try:
            yield
        finally:
            events.append(f"/{name}")

    recover = Recovery(method="range")  # halves
    run(faulty(above(7, "backward")), toy_batch(), recover, phase=phase)
    assert [e for e in events if e[0] != "/"] == [*WORK, *WORK, *WORK]
    events.clear()
    run(faulty(above(7, "forward")), toy_batch(), recover, phase=phase)
    assert [e for e in events if e[0] != "/"] == [*WORK[:3], *WORK, *WORK]
