"""Which rank failed first, of ranks that fail because of each other, and what the error says."""

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.core.errors import RankError
from workbench.distributed.progress import DONE, Progress
from workbench.processes import how_it_ended


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
