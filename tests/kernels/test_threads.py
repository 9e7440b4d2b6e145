"""The thread pool: equal results for any number of threads, errors propagate, no deadlock, usable after a fork."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, strategies as st

from workbench.kernels import threads
from workbench.kernels.threads import get_num_threads, num_chunks, parallel_edges, parallel_rows, run_tasks

PREPARE = """
import os, signal, torch
from workbench.kernels.threads import parallel_rows, run_tasks, set_num_threads

def covered():
    hits = torch.zeros(12, 50, dtype=torch.int64)
    nested = lambda row: parallel_rows(lambda lo, hi: hits[row, lo:hi].add_(1), 50, min_rows=1)
    run_tasks([lambda row=row: nested(row) for row in range(12)])
    return bool((hits == 1).all())

signal.alarm(30)  # a deadlock ends here
"""
NESTED = """
for count in (1, 2, 7):
    set_num_threads(count)
    print(covered())
"""
FORK = """
set_num_threads(4)
assert covered()
child = os.fork()
if child == 0:
    signal.alarm(10)
    os._exit(0 if covered() else 1)
status = os.waitpid(child, 0)[1]
assert covered()
print(os.waitstatus_to_exitcode(status))
"""


@contextmanager
def num_threads_set(count: int) -> Iterator[None]:
    before = get_num_threads()
    threads.set_num_threads(count)
    try:
        yield
    finally:
        threads.set_num_threads(before)


def run_python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | env, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("rows", [0, 1, 6, 7, 100, 1001])
def test_rows_are_covered_once(num_threads, rows):
    hits = torch.zeros(rows, dtype=torch.int64)
    parallel_rows(lambda lo, hi: hits[lo:hi].add_(1), rows, min_rows=1)
    assert bool((hits == 1).all())


@given(degrees=st.lists(st.integers(0, 9), max_size=40))
def test_edge_ranges_cover_all_rows(degrees):
    indptr = torch.tensor([0, *degrees]).cumsum(0)
    hits = torch.zeros(len(degrees), dtype=torch.int64)
    with num_threads_set(3):
        parallel_edges(lambda lo, hi: hits[lo:hi].add_(1), indptr, work_per_edge=threads._MIN_WORK_PER_THREAD)
    assert bool((hits == 1).all())


def test_an_error_in_a_range_of_edges_propagates(num_threads):
    def fail(lo, hi):
        if lo <= 700 < hi:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        parallel_edges(fail, torch.arange(1000), work_per_edge=threads._MIN_WORK_PER_THREAD)


def test_small_work_uses_fewer_threads(num_threads):
    assert num_chunks(10_000, min_rows=1) == num_threads
    assert num_chunks(99, min_rows=50) == 1
    assert num_chunks(0) == 1


def test_tasks_run_concurrently():
    """Each task waits for the other, so that only two threads can complete them."""
    meeting = threading.Barrier(2, timeout=20)

    def meet() -> None:
        meeting.wait()

    with num_threads_set(2):
        run_tasks([meet, meet])
    assert not meeting.broken


@pytest.mark.parametrize("failing", [0, 3])
def test_an_error_is_raised_after_all_tasks_stopped(num_threads, failing):
    started, ended = [], []

    def task(number):
        started.append(number)
        try:
            if number == failing:
                raise KeyError(number)
            time.sleep(0.01)
        finally:
            ended.append(number)

    with pytest.raises(KeyError, match=str(failing)):
        run_tasks([lambda number=number: task(number) for number in range(40)])
    assert sorted(started) == sorted(ended)
    assert len(ended) < 40
    if num_threads == 1:
        assert ended == list(range(failing + 1))


def test_nested_tasks_finish():
    result = run_python(PREPARE + NESTED)
    assert result.stdout == "True\n" * 3, result.stderr


def test_pool_may_be_resized_while_others_use_it():
    stop, results = threading.Event(), []

    def use():
        hits = torch.zeros(64, dtype=torch.int64)
        rounds = 0
        while not stop.is_set():
            parallel_rows(lambda lo, hi: hits[lo:hi].add_(1), 64, min_rows=1)
            rounds += 1
        results.append(bool((hits == rounds).all()))

    users = [threading.Thread(target=use) for _ in range(2)]
    with num_threads_set(2):
        for user in users:
            user.start()
        for count in [2, 3] * 50:
            threads.set_num_threads(count)
        stop.set()
        for user in users:
            user.join(timeout=30)
    assert results == [True, True]


@pytest.mark.slow
def test_pool_works_after_fork():
    result = run_python(PREPARE + FORK)
    assert result.stdout == "0\n", result.stderr


@pytest.mark.parametrize("count", [0, -1])
def test_set_num_threads_rejects(count):
    with pytest.raises(ValueError, match=f"number of threads is {count}; it must be at least 1"):
        threads.set_num_threads(count)


@pytest.mark.slow
def test_environment_sets_the_number():
    code = "from workbench.kernels.threads import get_num_threads; print(get_num_threads())"
    assert run_python(code, WORKBENCH_NUM_THREADS="5").stdout == "5\n"


@pytest.mark.parametrize("value", ["0", "-2", "two", ""])
def test_environment_is_checked(monkeypatch, value):
    monkeypatch.setenv("WORKBENCH_NUM_THREADS", value)
    with pytest.raises(ValueError, match=f"WORKBENCH_NUM_THREADS is {value!r}; it must be a whole number"):
        threads._default_threads()


def test_tasks_run_in_the_calling_thread_if_no_thread_can_be_started(monkeypatch):
    def refuse(self) -> None:
        raise RuntimeError("can't start new thread")

    with num_threads_set(3):
        monkeypatch.setattr(threading.Thread, "start", refuse)
        ran = []
        run_tasks([lambda n=n: ran.append((n, threading.current_thread())) for n in range(20)])
        assert ran == [(n, threading.main_thread()) for n in range(20)]
        monkeypatch.undo()
        hits = torch.zeros(100, dtype=torch.int64)
        parallel_rows(lambda lo, hi: hits[lo:hi].add_(1), 100, min_rows=1)
        assert bool((hits == 1).all())  # the failed start leaves no trace


def test_operations_of_torch_in_a_task_start_no_threads():
    """A second team of OpenMP threads would put the main thread's to sleep after each operation."""
    meeting = threading.Barrier(4, timeout=20)
    numbers: list[tuple[bool, int]] = []

    def task() -> None:
        numbers.append((threading.current_thread() is threading.main_thread(), torch.get_num_threads()))
        meeting.wait()

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with num_threads_set(4):
            run_tasks([task] * 4)
        assert sorted(numbers) == [(False, 1)] * 3 + [(True, 3)]
        assert torch_threads_of_a_new_thread() == 3
    finally:
        torch.set_num_threads(before)


def torch_threads_of_a_new_thread() -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def test_a_pool_that_has_just_started_leaves_torch_alone():
    """Threads that started while nobody waited for them once set torch's number back after it had been changed."""
    before = torch.get_num_threads()
    try:
        for count in (3, 2) * 10:
            with num_threads_set(4):
                run_tasks([int] * 4)
                torch.set_num_threads(count)
                assert torch_threads_of_a_new_thread() == count
            assert torch_threads_of_a_new_thread() == count
    finally:
        torch.set_num_threads(before)


def test_a_pool_has_as_many_threads_as_the_system_starts(monkeypatch):
    start, started = threading.Thread.start, []

    def start_two(self: threading.Thread) -> None:
        if len([thread for thread in started if thread.is_alive()]) >= 2:
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    with num_threads_set(5):
        monkeypatch.setattr(threading.Thread, "start", start_two)
        meeting = threading.Barrier(3, timeout=20)
        run_tasks([meeting.wait] * 3)
    assert len(started) >= 2


def test_an_interrupt_while_waiting_leaves_the_pool_usable():
    with num_threads_set(2):
        release = threading.Event()

        def task(number: int) -> None:
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
            release.wait(30)

        threading.Timer(0.2, release.set).start()
        with pytest.raises(KeyboardInterrupt):
            run_tasks([lambda n=n: task(n) for n in range(4)])
        hits = torch.zeros(100, dtype=torch.int64)
        parallel_rows(lambda lo, hi: hits[lo:hi].add_(1), 100, min_rows=1)
        assert bool((hits == 1).all())
