"""Ranks that raise, hang, exit or die at any stage: all end in time, the error says which, and nothing is left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Pipe
from tempfile import TemporaryFile
from threading import Thread
from typing import Any

import psutil
import pytest

import workbench as wb
from tests.experiment.test_parallel import is_alive, wait_until
from workbench.core.errors import RankError
from workbench.distributed.progress import (
    DONE,
    FUNCTION,
    IMPORT,
    RENDEZVOUS,
    START,
    Progress,
    ProgressBoard,
    Reporter,
)
from workbench.distributed.rank_pool import RankCall, RankPool, RankState, failed_rank, timed_out
from workbench.distributed.rank_process import Outcome

RUN = "tests.distributed.misbehaving:run"
STAGES = {
    "import": "import",
    "rendezvous": "rendezvous",
    "before": "before the first collective",
    "in": "in ",
    "after": "after all_reduce (collective 1)",
}
ENDS = {
    "raises": ": ArithmeticError: it does not add up",
    "hangs": " did not end within ",
    "exits": " ended with exit status 3",
    "crashes": " crashed with SIGSEGV",
    "dies": " was killed by SIGKILL, as the system does when memory runs out,",
}
SPARE_SECONDS = 5.0


@contextmanager
def leaves_nothing() -> Iterator[None]:
    """No process, also of those that the ranks started, and no open port is left at the end."""
    me = psutil.Process()
    before, ports = set(me.children(recursive=True)), listening(me)
    yield
    wait_until(lambda: not any(is_alive(child.pid) for child in set(me.children(recursive=True)) - before), 5)
    wait_until(lambda: not misbehaving(), 5)
    assert listening(me) == ports


def misbehaving() -> list[str]:
    """Processes that inherited the order to misbehave, orphans too."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("MISBEHAVED_OF") == str(os.getpid()) and is_alive(process.pid):
                found.append(" ".join(process.cmdline()))
    return found


def listening(process: psutil.Process) -> set[int]:
    return {at.laddr.port for at in process.net_connections() if at.status == psutil.CONN_LISTEN}


def check_failure(monkeypatch, stage: str, fate: str, world_size: int, *, timeout_seconds: float) -> None:
    """The last rank misbehaves."""
    bad = world_size - 1
    monkeypatch.setenv("MISBEHAVE", f"{stage} {fate} {bad}")
    monkeypatch.setenv("MISBEHAVED_OF", str(os.getpid()))
    begin = time.monotonic()
    with leaves_nothing(), pytest.raises(RankError) as caught:
        wb.run_ranks(RUN, {}, world_size, timeout_seconds=timeout_seconds)
    assert time.monotonic() - begin < timeout_seconds + SPARE_SECONDS
    head, message = str(caught.value).splitlines()[0], str(caught.value)
    assert head.startswith(f"{RUN}: rank ") and f"rank {bad} ({STAGES[stage]}" in head
    assert "TypeError" in head if (stage, fate) == ("in", "raises") else ENDS[fate] in head
    assert (caught.value.rank, caught.value.stage[:2]) == (bad, STAGES[stage][:2]) or fate == "hangs"
    assert (f"stack of rank {bad}:" in message and "misbehaving.py" in message) == (
        fate in ("raises", "hangs", "crashes")
    )


@pytest.mark.parametrize(("stage", "fate"), [("rendezvous", "raises"), ("in", "dies")])
def test_a_rank_that_fails_ends_all(monkeypatch, stage, fate):
    check_failure(monkeypatch, stage, fate, 2, timeout_seconds=60)


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("fate", ENDS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_rank_that_fails_at_any_stage_ends_all(monkeypatch, stage, fate, world_size):
    check_failure(monkeypatch, stage, fate, world_size, timeout_seconds=(30 if fate == "hangs" else 120))


@pytest.mark.slow
def test_a_rank_that_hangs_is_stopped_and_the_pool_starts_new_ones(monkeypatch):
    monkeypatch.setenv("MISBEHAVED_OF", str(os.getpid()))
    with leaves_nothing(), RankPool(2) as pool:
        monkeypatch.setenv("MISBEHAVE", "after hangs 1")
        pool.run("tests.distributed.rank_functions:nothing", {})
        first = pool.pids
        with pytest.raises(RankError) as caught:
            pool.run(RUN, {}, timeout_seconds=0.5)
        assert pool.pids == [] and not any(map(is_alive, first))
        assert (caught.value.rank, caught.value.stage) == (1, "after all_reduce (collective 1)")
        head, others, *stack = str(caught.value).splitlines()
        assert head.endswith("did not end within 0.5 s; raise timeout_seconds if more time is needed")
        assert others == "other ranks: rank 0 (done)" and any("meet_fate" in line for line in stack)


PARENT = """
import workbench as wb
wb.run_ranks("tests.distributed.misbehaving:run", {}, 1)
"""


@pytest.mark.slow
def test_ranks_die_with_a_parent_that_is_killed(tmp_path):
    environment = os.environ | {"MISBEHAVE": "before hangs 0", "MISBEHAVED_OF": str(os.getpid())}
    parent = subprocess.Popen([sys.executable, "-c", PARENT], env=environment)
    try:
        wait_until(lambda: "sleep 602" in misbehaving() or parent.poll() is not None)
        ranks = psutil.Process(parent.pid).children(recursive=True)
        assert len(ranks) > 3
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    wait_until(lambda: not any(is_alive(rank.pid) for rank in ranks) and not misbehaving(), 5)


def test_an_interrupt_ends_the_ranks(monkeypatch):
    monkeypatch.setattr("workbench.distributed.rank_pool.RankCall.rows", interrupted)
    with leaves_nothing(), pytest.raises(KeyboardInterrupt):
        wb.run_ranks(RUN, {}, 2)


def interrupted(self):
    raise KeyboardInterrupt


IN, AFTER = Progress(FUNCTION, 1, "all_reduce"), Progress(FUNCTION, 2, "all_reduce")


def test_the_first_failure_is_the_cause():
    late, early = (RankState(rank, IN, "Closed: by peer", "stack", 9 - rank) for rank in (0, 1))
    error = failed_rank("m:f", [late, early])
    assert error.rank == 1 and str(error).splitlines() == [
        "m:f: rank 1 (in all_reduce (collective 1)): Closed: by peer",
        "other ranks: rank 0 (in all_reduce (collective 1)): Closed: by peer",
        "stack of rank 1:",
        "stack",
    ]


def test_a_death_is_the_cause_of_errors_that_are_reported_before_it():
    error = failed_rank("m:f", [RankState(0, IN, "Closed: by peer", "stack", 1.0), RankState(1, AFTER, status=-9)])
    assert (error.rank, error.stage) == (1, "after all_reduce (collective 1)") and "stack" not in str(error)


def test_those_furthest_behind_are_what_the_others_waited_for():
    places = [Progress(DONE), IN, Progress(RENDEZVOUS), AFTER]
    states = [RankState(rank, progress, trace=f"at {rank}") for rank, progress in enumerate(places)]
    error = timed_out("m:f", states, 3.0)
    assert error.rank == 2 and str(error).splitlines() == [
        "m:f: rank 2 (rendezvous) did not end within 3 s; raise timeout_seconds if more time is needed",
        "other ranks: rank 0 (done); rank 1 (in all_reduce (collective 1)); rank 3 (after all_reduce (collective 1))",
        "stack of rank 2:",
        "at 2",
    ]
    both = timed_out("m:f", [RankState(0, IN), RankState(1, Progress(FUNCTION, 1, "recv"))], 3.0)
    assert "rank 0 (in all_reduce (collective 1)) and rank 1 (in recv (collective 1))" in str(both)


def test_progress_is_ordered_as_ranks_get_ahead():
    before, second = Progress(FUNCTION), Progress(FUNCTION, 3, "barrier")
    ahead = [Progress(IMPORT), Progress(RENDEZVOUS), before, IN, AFTER, second, Progress(DONE)]
    assert sorted(ahead, key=lambda progress: progress.place) == ahead
    assert str(second) == "in barrier (collective 2)"


def test_phases_of_a_step_are_named_and_stay_after_an_error():
    with TemporaryFile() as file:
        file.truncate(ProgressBoard.num_bytes(2))
        board = ProgressBoard(file.fileno(), 2)
        reporter = Reporter(board, 1)
        reporter.enter(FUNCTION)
        collective = reporter._reported("all_to_all_single", lambda: str(board.read(1)))
        with reporter.in_phase("sampling"):
            assert str(board.read(1)) == "sampling, before the first collective"
            with reporter.in_phase("ids"):
                assert collective() == "ids, in all_to_all_single (collective 1)"
            assert str(board.read(1)) == "sampling, after all_to_all_single (collective 1)"
            ahead = Thread(target=lambda: seen.append((reporter.phase, collective(), reporter.phase)))
            seen: list[tuple[str, ...]] = []
            ahead.start()
            ahead.join()
            assert seen == [("", "in all_to_all_single (collective 2)", "")]  # another thread is in no phase
        assert str(board.read(1)) == "after all_to_all_single (collective 2)"
        with pytest.raises(ArithmeticError), reporter.in_phase("backward"):
            raise ArithmeticError
        assert str(board.read(1)) == "backward, after all_to_all_single (collective 2)"
        assert board.read(0) == Progress(START)


class Waking:
    """A rank that hangs in a system call, from which the signal for its stack wakes it."""

    def __init__(self) -> None:
        self.progress, self.asked, self.status = Progress(FUNCTION, 1, "recv"), False, None
        self.channel, self._theirs = Pipe()

    def outcome(self):
        return Outcome(rows=[]) if self.asked else None

    def ask_stack(self):
        self.progress, self.asked = Progress(DONE), True

    def stack(self):
        return "in C" if self.asked else ""


def test_states_are_read_before_the_signal_that_may_change_them():
    ranks: Any = [Waking(), Waking()]
    ranks[0].progress = Progress(DONE)
    ranks[0].asked = True
    with pytest.raises(RankError) as caught:
        RankCall("m:f", ranks, 0.01, time.monotonic() + 0.01).rows()
    assert str(caught.value).splitlines() == [
        "m:f: rank 1 (in recv (collective 1)) did not end within 0.01 s; raise timeout_seconds if more time is needed",
        "other ranks: rank 0 (done)",
        "stack of rank 1:",
        "in C",
    ]


def test_phases_of_any_characters_are_read():
    with TemporaryFile() as file:
        file.truncate(ProgressBoard.num_bytes(1))
        board = ProgressBoard(file.fileno(), 1)
        for phase in ("über" * 5, "caf\udce9", "é" * 20):
            board.write(0, Progress(FUNCTION, 0, "", phase))
            assert str(board.read(0)).encode()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_children_of_an_idle_rank_end_with_it_and_the_pool_starts_new_ones(monkeypatch, number):
    monkeypatch.setenv("MISBEHAVED_OF", str(os.getpid()))
    shared = set(os.listdir("/dev/shm"))
    with leaves_nothing(), RankPool(1) as pool:
        pool.run("tests.distributed.descendants:with_children", {})
        (first,) = pool.pids
        assert len(misbehaving()) >= 6, "keeper, rank, workers of a DataLoader, two children, a grandchild"
        os.kill(first, number)
        wait_until(lambda: not misbehaving(), 5)
        pool.run("tests.distributed.rank_functions:nothing", {})
        assert pool.pids != [first]
    assert set(os.listdir("/dev/shm")) <= shared
