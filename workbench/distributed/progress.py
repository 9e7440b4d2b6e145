"""How far each rank has come, in memory that the ranks and their launcher share: readable after a rank was killed."""

import mmap
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, NamedTuple, Self

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
