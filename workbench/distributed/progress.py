"""How far each rank has come, in memory that the ranks and their launcher share: readable after a rank was killed."""

import mmap
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple, Self

from workbench.core.errors import RankError
from workbench.processes import how_it_ended

_SLOT = struct.Struct("<BI40s16s")  # stage, position, name of the collective, phase

START, IMPORT, RENDEZVOUS, FUNCTION, ROWS, DONE = range(6)

_COLLECTIVES = (
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "irecv",
    "isend",
    "monitored_barrier",
    "new_group",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
)


class Progress(NamedTuple):
    """Progress of a rank.

    Args:
        stage: START, IMPORT, RENDEZVOUS, FUNCTION, ROWS or DONE.
        position: 0 before the first collective, 2n - 1 in the n-th one, 2n after it.
        collective: name of the last collective that began.
        phase: of a training step, such as "sampling"; "" outside of one (`in_phase`).
    """

    stage: int
    position: int = 0
    collective: str = ""
    phase: str = ""

    @property
    def place(self) -> tuple[int, int]:
        """Stage and position: smaller for a rank that is behind another one."""
        return self.stage, self.position

    def __str__(self) -> str:
        if self.stage != FUNCTION:
            return ("start", "import", "rendezvous", "", "returning rows", "done")[self.stage]
        phase = f"{self.phase}, " if self.phase else ""
        if not self.position:
            return f"{phase}before the first collective"
        place = "in" if self.position % 2 else "after"
        return f"{phase}{place} {self.collective} (collective {(self.position + 1) // 2})"


class ProgressBoard:
    """One slot per rank in a shared file.

    Args:
        file: descriptor of a file that all ranks and their launcher have open.
        world_size: number of slots.
    """

    def __init__(self, file: int, world_size: int) -> None:
        self._memory = mmap.mmap(file, world_size * _SLOT.size)

    @staticmethod
    def num_bytes(world_size: int) -> int:
        """Size of the file."""
        return world_size * _SLOT.size

    def read(self, rank: int) -> Progress:
        """The progress of a rank."""
        stage, position, *names = _SLOT.unpack_from(self._memory, rank * _SLOT.size)
        return Progress(stage, position, *(name.rstrip(b"\0").decode(errors="replace") for name in names))

    def write(self, rank: int, progress: Progress) -> None:
        """Set the progress of a rank."""
        names = (name.encode(errors="replace") for name in (progress.collective, progress.phase))
        slot = _SLOT.pack(progress.stage, progress.position, *names)
        self._memory[rank * _SLOT.size : (rank + 1) * _SLOT.size] = slot


class Reporter:
    """Writes one rank's progress; each collective of `torch.distributed` that begins or ends is a step.

    Args:
        board: to write; None: nowhere.
        rank: whose slot is written.
    """

    def __init__(self, board: ProgressBoard | None = None, rank: int = 0) -> None:
        self._board, self._rank = board, rank
        self._begun, self._last = 0, Progress(START)
        self._phase = threading.local()  # sampling may run ahead in a thread of its own

    def enter(self, stage: int) -> None:
        """Begin a stage."""
        self._begun, self._phase.name = 0, ""
        self._write(Progress(stage))

    def watch_collectives(self) -> Self:
        """Replace the collectives of the module `torch.distributed` by ones that are reported; for rank processes.

        From here on, `in_phase` reports here too.
        """
        global _reporter
        import torch.distributed as dist

        for name in _COLLECTIVES:
            setattr(dist, name, self._reported(name, getattr(dist, name)))
        _reporter = self
        return self

    @property
    def phase(self) -> str:
        """The phase of the calling thread."""
        return getattr(self._phase, "name", "")

    @contextmanager
    def in_phase(self, name: str) -> Iterator[None]:
        """Report a phase of the calling thread; after an error, it remains reported."""
        before, self._phase.name = self.phase, name
        self._write(self._last)
        yield
        self._phase.name = before
        self._write(self._last)

    def _reported(self, name: str, collective: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(collective)
        def call(*args: Any, **kwargs: Any) -> Any:
            stage = self._last.stage
            self._begun = number = self._begun + 1
            self._write(Progress(stage, 2 * number - 1, name))
            result = collective(*args, **kwargs)
            self._write(Progress(stage, 2 * number, name))
            return result

        return call

    def _write(self, progress: Progress) -> None:
        self._last = progress._replace(phase=self.phase)
        if self._board is not None:
            self._board.write(self._rank, self._last)


_reporter = Reporter()


def in_phase(name: str) -> AbstractContextManager[None]:
    """Name the phase of a training step that this rank is in, for the error if it fails or hangs there.

    Args:
        name: at most 16 characters, such as "sampling", "ids", "features", "forward" or "backward".
    """
    return _reporter.in_phase(name)


def current_phase() -> str:
    """The phase of the calling thread, "" outside of one."""
    return _reporter.phase


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
        name: of the function.
        states: of all ranks; at least one has failed.
    """
    cause = first_failure(states)
    assert cause is not None
    return _error(name, cause.describe(), [cause], states)


def timed_out(name: str, states: Sequence[RankState], timeout_seconds: float) -> RankError:
    """The error of ranks that did not end in time; those furthest behind are what the others waited for.

    Args:
        name: of the function.
        states: of all ranks.
        timeout_seconds: the limit, for the message.
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
