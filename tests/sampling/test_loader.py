"""`batches` and `prefetch`: contents and order of an epoch, errors and early exit."""

import os
import signal
import threading
import time

import pytest
import torch

import workbench as wb
from tests.strategies import random_graph
from workbench.sampling import loader

GRAPH = random_graph(40, 300, seed=3)
IDS = torch.arange(2, 39)
SAMPLER = wb.NeighborSampler([2, 2])


def seeds_of(**options) -> list[list[int]]:
    options = {"epoch": 0} | options
    loader = wb.batches(GRAPH, IDS, sampler=SAMPLER, batch_size=8, **options)  # pyright: ignore[reportArgumentType]
    return [mb.seeds.tolist() for _, mb in loader]


def test_an_epoch_contains_every_id_once() -> None:
    batches = seeds_of()
    assert [len(b) for b in batches] == [8, 8, 8, 8, 5]
    assert sorted(node for batch in batches for node in batch) == IDS.tolist()
    assert seeds_of(shuffle=False) == [IDS[i : i + 8].tolist() for i in range(0, 37, 8)]
    assert [len(b) for b in seeds_of(drop_last=True)] == [8, 8, 8, 8]


def test_the_order_depends_on_seed_and_epoch() -> None:
    assert seeds_of() == seeds_of()
    assert seeds_of() != seeds_of(epoch=1)
    assert seeds_of() != seeds_of(seed=1)


def test_steps_are_numbered_through_all_epochs() -> None:
    steps = []
    for epoch in range(3):
        for step, mb in wb.batches(GRAPH, IDS, sampler=SAMPLER, batch_size=8, epoch=epoch):
            assert torch.equal(mb.node_ids, SAMPLER.sample(GRAPH, mb.seeds, step=step).node_ids)
            assert mb.step == step
            steps.append(step)
    assert steps == list(range(15))


def test_bad_input_is_refused_at_the_call() -> None:
    with pytest.raises(ValueError, match="batch_size is 0"):
        wb.batches(GRAPH, IDS, sampler=SAMPLER, batch_size=0)
    with pytest.raises(ValueError, match="2 more than once"):
        wb.batches(GRAPH, torch.tensor([2, 3, 2]), sampler=SAMPLER, batch_size=2)
    with pytest.raises(ValueError, match="depth is 0"):
        wb.prefetch([], depth=0)
    with pytest.raises(ValueError, match="device is 'nonsense', which can't be used here"):
        wb.prefetch([], device="nonsense")


def test_prefetch_keeps_order_and_length() -> None:
    assert list(wb.prefetch(range(100), depth=3)) == list(range(100))
    assert list(wb.prefetch([])) == []


def test_prefetch_runs_ahead_by_its_depth_and_no_further() -> None:
    made: list[int] = []

    def produce():
        for i in range(20):
            made.append(i)
            yield i

    stream = iter(wb.prefetch(produce(), depth=2))
    assert next(stream) == 0
    deadline = time.monotonic() + 5
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert made == [0, 1, 2, 3]  # one consumed, two ready, one waiting to be put
    assert list(stream) == list(range(1, 20))


def test_an_error_is_raised_in_place_of_its_item() -> None:
    def produce():
        yield 1
        raise KeyError("second item")

    stream = iter(wb.prefetch(produce()))
    assert next(stream) == 1
    with pytest.raises(KeyError, match="second item"):
        next(stream)


def test_early_exit_ends_the_thread_and_closes_the_iterable() -> None:
    closed = threading.Event()

    def produce():
        try:
            while True:
                yield 0
        finally:
            closed.set()

    before = threading.active_count()
    for _ in wb.prefetch(produce()):
        break
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before
    assert closed.is_set()


def test_non_iterables_are_refused_at_the_call() -> None:
    with pytest.raises(TypeError, match="not iterable"):
        wb.prefetch(5)  # pyright: ignore[reportArgumentType]


def test_early_exit_does_not_wait_forever_for_a_hanging_iterable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "_JOIN_SECONDS", 0.05)
    release = threading.Event()

    def produce():
        yield 1
        release.wait(60)

    items = iter(wb.prefetch(produce()))
    assert next(items) == 1
    with pytest.warns(RuntimeWarning, match=r"has not returned for 0\.05 s; its thread keeps running"):
        items.close()  # type: ignore[attr-defined]
    release.set()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_process_gets_an_error_instead_of_hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "_POLL_SECONDS", 0.05)
    release = threading.Event()

    def produce():
        yield 1
        release.wait(60)

    items = iter(wb.prefetch(produce()))
    assert next(items) == 1
    child = os.fork()
    if not child:
        signal.alarm(20)  # ends a hang
        try:
            next(items)
        except RuntimeError as error:
            os._exit(0 if "as after a fork" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    release.set()
    assert list(items) == []


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_seed_must_be_an_integer(shuffle: bool) -> None:
    with pytest.raises(ValueError, match=r"seed is 1\.5; it must be a whole number"):
        wb.batches(GRAPH, IDS, sampler=SAMPLER, batch_size=2, shuffle=shuffle, seed=1.5)  # type: ignore[arg-type]


def test_an_interrupt_of_the_wait_stays_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt between a condition's wake-up and its lock ends in "release unlocked lock", so the loop waits for
    none; thousands of interrupts found it (`tests/test_interrupted.py`).
    """

    def interrupted(self: threading.Condition, state: object) -> None:
        raise KeyboardInterrupt

    items = iter(wb.prefetch(time.sleep(0.02) or number for number in range(3)))
    first = next(items)
    monkeypatch.setattr(threading.Condition, "_acquire_restore", interrupted)  # a thread that starts waits for one, too
    assert [first, *items] == [0, 1, 2]
