"""`RankPool`: processes that run functions together; a call stops at the first failure and names its cause."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from tempfile import TemporaryFile
from typing import Any, Self

from workbench.core.errors import RankError, check_at_least, complete_despite_interrupt, deferred_interrupt
from workbench.distributed.progress import DONE, RENDEZVOUS, Progress, ProgressBoard
from workbench.distributed.rank_main import Rendezvous, check_gpus, check_timeout
from workbench.distributed.rank_process import Order, Outcome, RankProcess, check_config, function_name, package_of
from workbench.kernels.threads import get_num_threads
from workbench.processes import how_it_ended

_POLL_SECONDS = 0.05

_SETTLE_SECONDS = 0.5  # in which the death of a peer shows, which may be why another rank raised

_STACK_SECONDS = 0.3

_SPARE_SECONDS = 60.0  # of a collective beyond the limit of its call, which names the rank that hangs


class RankPool:
    """Processes that run functions together, one function after the other; each call has a process group of its own.

        with wb.distributed.RankPool(2) as pool:
            rows = pool.run("experiments.paper.figure:on_ranks", {"size": 3})

    The ranks start with the first call. They end when the pool is closed, at the latest with this process, and so does
    all that they have started; after a failure the next call starts new ones. Ranks keep the modules that they have
    imported.

    Args:
        world_size: number of ranks, at least 1; they share the cores.
        backend: of `torch.distributed`, "gloo" or "nccl", for which each rank has a GPU of its own.

    Raises:
        ValueError: `world_size` is below 1, or with "nccl" above the number of GPUs.
    """

    def __init__(self, world_size: int, *, backend: str = "gloo") -> None:
        check_at_least("world_size", world_size, 1)
        if "nccl" in backend:
            check_gpus(world_size)
        self.world_size, self.backend = world_size, backend
        self._ranks: list[RankProcess] = []

    @property
    def pids(self) -> list[int]:
        """Process ids of the ranks; empty if none has started."""
        return [process.pid for process in self._ranks]

    def run(
        self,
        function: str | Callable[..., Any],
        config: Mapping[str, Any],
        *,
        world_size: int | None = None,
        timeout_seconds: float = 600.0,
    ) -> list[dict[str, Any]]:
        """Call a function on ranks and return the rows of rank 0.

        Args:
            function: "module:function", or a function of a module; called with the configuration, yields rows.
            config: JSON values.
            world_size: number of ranks of this call; None: all. The others wait.
            timeout_seconds: limit of the call, the start of processes included.

        Raises:
            ValueError: a function that ranks can't import, more ranks than there are, or a limit out of range.
            TypeError: a configuration that is not JSON.
            RankError: a rank raised, died or did not end in time; all ranks have ended.
        """
        deadline = time.monotonic() + timeout_seconds
        order = self._order(function, config, timeout_seconds)
        size = self.world_size if world_size is None else world_size
        check_at_least("world_size", size, 1, most=self.world_size)
        try:
            with Rendezvous(size) as rendezvous:
                self._start()
                for rank, process in enumerate(self._ranks[:size]):
                    process.send(replace(order, environment=rendezvous.environment(rank)))
                return RankCall(order.function, self._ranks[:size], timeout_seconds, deadline).rows()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the ranks, whatever they do."""
        complete_despite_interrupt(self._kill)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _order(self, function: str | Callable[..., Any], config: Mapping[str, Any], timeout_seconds: float) -> Order:
        check_timeout("timeout_seconds", timeout_seconds)
        name = function_name(function)
        return Order(name, check_config(config), {}, self.backend, timeout_seconds + _SPARE_SECONDS, package_of(name))

    def _start(self) -> None:
        """Start the ranks if there are none, or if one has died since the last call."""
        if any(process.status is not None for process in self._ranks):
            self.close()
        if self._ranks:
            return
        threads = max(1, get_num_threads() // self.world_size)
        with TemporaryFile() as board:
            board.truncate(ProgressBoard.num_bytes(self.world_size))
            for rank in range(self.world_size):
                with deferred_interrupt():  # a child that is not in the list would not be killed
                    self._ranks.append(RankProcess(rank, self.world_size, board.fileno(), threads))

    def _kill(self) -> None:
        for process in self._ranks:
            process.kill()
        self._ranks = []


def run_ranks(
    function: str | Callable[..., Any],
    config: Mapping[str, Any],
    world_size: int,
    *,
    timeout_seconds: float = 600.0,
    backend: str = "gloo",
) -> list[dict[str, Any]]:
    """Run a function on ranks that start now and end with the call; `RankPool` keeps them for several calls.

    Every rank joins a process group of `torch.distributed` and calls the function with the configuration. The contract
    is `env://`, a function by name, and JSON, so torchrun, Slurm or Ray can start the same function with
    `python -m workbench.distributed.rank_main module:function CONFIG`.

    Args:
        function: "module:function", or a function of a module; called with the configuration, yields rows.
        config: JSON values.
        world_size: number of ranks, at least 1; they share the cores.
        timeout_seconds: after which all ranks are killed, from the start of their processes.
        backend: of `torch.distributed`, "gloo" or "nccl".

    Returns:
        The rows of rank 0: mappings from column to number, string, bool or None.

    Raises:
        ValueError: a function that ranks can't import, a limit out of range, or with "nccl" too few GPUs.
        TypeError: a configuration that is not JSON.
        RankError: a rank raised, died or did not end in time; all ranks have ended.
    """
    with RankPool(world_size, backend=backend) as pool:
        return pool.run(function, config, timeout_seconds=timeout_seconds)


@dataclass(frozen=True)
class RankState:
    """A rank at the moment of a failure.

    Args:
        rank: the rank.
        progress: how far it had come.
        error: that its function raised, in one line; None if it did not.
        trace: stack of that error, or of a process that hangs; "" if there is none.
        failed_at: time of the error, on a clock that all ranks share.
        status: exit status of its process; None if it still runs.
    """

    rank: int
    progress: Progress
    error: str | None = None
    trace: str = ""
    failed_at: float = 0.0
    status: int | None = None

    @property
    def has_failed(self) -> bool:
        """It raised or died; else it waits, or hangs, or is done."""
        return self.error is not None or self.status is not None

    def describe(self) -> str:
        """One clause."""
        where = f"rank {self.rank} ({self.progress})"
        if self.status is not None:
            return f"{where} {how_it_ended(self.status)}"
        return f"{where}: {self.error}" if self.error is not None else where


class RankCall:
    """A call that ranks have begun.

    Args:
        name: of the function.
        ranks: processes in order of rank.
        timeout_seconds: limit of the call, for the message.
        deadline: when it ends, in seconds of `time.monotonic`.
    """

    def __init__(self, name: str, ranks: Sequence[RankProcess], timeout_seconds: float, deadline: float) -> None:
        self._name, self._ranks = name, ranks
        self._timeout_seconds, self._deadline = timeout_seconds, deadline
        self._outcomes: dict[int, Outcome] = {}

    def rows(self) -> list[dict[str, Any]]:
        """The rows of rank 0, when all ranks have returned."""
        while len(self._outcomes) < len(self._ranks):
            self._collect(_POLL_SECONDS)
            if any(state.has_failed for state in self._states()):
                self._settle()
                raise failed_rank(self._name, self._states(with_stacks=True))
            if time.monotonic() > self._deadline and len(self._outcomes) < len(self._ranks):
                raise timed_out(self._name, self._hanging(), self._timeout_seconds)
        return self._outcomes[0].rows or []

    def _collect(self, seconds: float) -> None:
        waiting = {rank: process for rank, process in enumerate(self._ranks) if rank not in self._outcomes}
        wait([process.channel for process in waiting.values()], seconds)
        for rank, process in waiting.items():
            if (outcome := process.outcome()) is not None:
                self._outcomes[rank] = outcome

    def _settle(self) -> None:
        """A rank raises in a collective when a peer has died, and may report that before the peer's death shows."""
        until = time.monotonic() + _SETTLE_SECONDS
        while self._may_be_a_consequence() and time.monotonic() < until:
            self._collect(_POLL_SECONDS)

    def _may_be_a_consequence(self) -> bool:
        states = self._states()
        died = any(state.status is not None for state in states)
        return not died and all(state.progress.stage >= RENDEZVOUS for state in states if state.has_failed)

    def _hanging(self) -> list[RankState]:
        """The states, and then the stacks: the signal that asks for them may wake what hangs in a system call."""
        states = self._states()
        asked = [state.rank for state in states if state.rank not in self._outcomes]
        for rank in asked:
            self._ranks[rank].ask_stack()
        time.sleep(_STACK_SECONDS)
        return [replace(one, trace=self._ranks[one.rank].stack()) if one.rank in asked else one for one in states]

    def _states(self, *, with_stacks: bool = False) -> list[RankState]:
        return [self._state(rank, process, with_stacks) for rank, process in enumerate(self._ranks)]

    def _state(self, rank: int, process: RankProcess, with_stack: bool) -> RankState:
        outcome = self._outcomes.get(rank)
        if outcome is None:
            trace = process.stack() if with_stack else ""
            return RankState(rank, process.progress, trace=trace, status=process.status)
        return RankState(rank, process.progress, outcome.error, outcome.trace or "", outcome.failed_at)


def first_failure(states: Sequence[RankState]) -> RankState | None:
    """The failure that caused the others: a death first, since others raise when their peer is gone; else the earliest.

    Args:
        states: of all ranks.
    """
    failed = [state for state in states if state.has_failed]
    return min(failed, key=lambda one: (one.status is None, one.failed_at, one.progress.place), default=None)


def failed_rank(name: str, states: Sequence[RankState]) -> RankError:
    """The error of a rank that raised or died.

    Args:
        states: of all ranks; at least one has failed.
    """
    cause = first_failure(states)
    assert cause is not None
    return _error(name, cause.describe(), [cause], states)


def timed_out(name: str, states: Sequence[RankState], timeout_seconds: float) -> RankError:
    """The error of ranks that did not end in time; those furthest behind are what the others waited for.

    Args:
        states: of all ranks.
    """
    done = Progress(DONE).place
    behind = min((state.progress.place for state in states if state.progress.place != done), default=done)
    slowest = [state for state in states if state.progress.place == behind]
    named = " and ".join(state.describe() for state in slowest)
    head = f"{named} did not end within {timeout_seconds:g} s; raise timeout_seconds if more time is needed"
    return _error(name, head, slowest, states)


def _error(name: str, head: str, causes: Sequence[RankState], states: Sequence[RankState]) -> RankError:
    others = [state.describe() for state in states if state not in causes]
    lines = [f"{name}: {head}", *([f"other ranks: {'; '.join(others)}"] if others else [])]
    lines += [f"stack of rank {cause.rank}:\n{cause.trace.rstrip()}" for cause in causes if cause.trace]
    return RankError("\n".join(lines), causes[0].rank, str(causes[0].progress))
