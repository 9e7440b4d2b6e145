"""One call of a function on all ranks: wait for their outcomes, stop at the first failure, name its cause."""

import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any

from workbench.distributed.failure import RankState, failed_rank, timed_out
from workbench.distributed.progress import RENDEZVOUS
from workbench.distributed.rank_process import Outcome, RankProcess

_POLL_SECONDS = 0.05
_SETTLE_SECONDS = 0.5  # in which the death of a peer shows, which may be why another rank raised
_STACK_SECONDS = 0.3


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
        """The rows of rank 0, when all ranks have returned.

        Raises:
            RankError: a rank raised, died or did not end in time.
        """
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
