"""How far each rank has come, in memory that the ranks and their launcher share: readable after a rank was killed."""

import mmap
import struct
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, Self

_SLOT = struct.Struct("<BI40s")  # stage, position, name of the collective

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
    """

    stage: int
    position: int = 0
    collective: str = ""

    @property
    def place(self) -> tuple[int, int]:
        """Stage and position: smaller for a rank that is behind another one."""
        return self.stage, self.position

    def __str__(self) -> str:
        if self.stage != FUNCTION:
            return ("start", "import", "rendezvous", "", "returning rows", "done")[self.stage]
        if not self.position:
            return "before the first collective"
        return f"{'in' if self.position % 2 else 'after'} {self.collective} (collective {(self.position + 1) // 2})"


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
        stage, position, name = _SLOT.unpack_from(self._memory, rank * _SLOT.size)
        return Progress(stage, position, name.rstrip(b"\0").decode())

    def write(self, rank: int, progress: Progress) -> None:
        """Set the progress of a rank."""
        slot = _SLOT.pack(progress.stage, progress.position, progress.collective.encode())
        self._memory[rank * _SLOT.size : (rank + 1) * _SLOT.size] = slot


class Reporter:
    """Writes one rank's progress; each collective of `torch.distributed` that begins or ends is a step.

    Args:
        board: to write; None: nowhere.
        rank: whose slot is written.
    """

    def __init__(self, board: ProgressBoard | None = None, rank: int = 0) -> None:
        self._board, self._rank, self._begun = board, rank, 0

    def enter(self, stage: int) -> None:
        """Begin a stage."""
        self._begun = 0
        self._write(Progress(stage))

    def watch_collectives(self) -> Self:
        """Replace the collectives of the module `torch.distributed` by ones that are reported; for rank processes."""
        import torch.distributed as dist

        for name in _COLLECTIVES:
            setattr(dist, name, self._reported(name, getattr(dist, name)))
        return self

    def _reported(self, name: str, collective: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(collective)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._begun += 1
            self._write(Progress(FUNCTION, 2 * self._begun - 1, name))
            result = collective(*args, **kwargs)
            self._write(Progress(FUNCTION, 2 * self._begun, name))
            return result

        return call

    def _write(self, progress: Progress) -> None:
        if self._board is not None:
            self._board.write(self._rank, progress)
