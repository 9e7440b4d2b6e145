"""Runs one point in a process of its own, which cannot take this process with it, and which ends with this process."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from typing import Any

from workbench.processes import KeptProcess, how_it_ended

_CHILD = "import sys; sys.path[:] = sys.argv[2:]; from workbench.experiment.point_child import main; main()"
_END_SECONDS = 5.0  # from the end of the channel to that of the process


@dataclass(frozen=True)
class Order:
    """The order to run one point, sent to a child process.

    Args:
        sweep: "paper/figure" whose `run` yields the rows.
        config: resolved configuration of the point, JSON values.
        code: digest of the code that the point's key is made of.
        read_at: time since which that code may have been edited, in seconds since 1970.
        threads: of the library's CPU kernels.
        torch_threads: of torch's operators.
    """

    sweep: str
    config: Mapping[str, Any]
    code: str
    read_at: float
    threads: int
    torch_threads: int


@dataclass(frozen=True)
class Outcome:
    """How a point ended.

    Args:
        rows: None if it failed.
        error: one line; None if it finished.
        trace: stack of the error, if the child could tell it.
    """

    rows: list[dict[str, Any]] | None = None
    error: str | None = None
    trace: str | None = None


class PointProcess:
    """A child process that runs a point. It is spawned, not forked: neither CUDA nor threads survive a fork.

    Args:
        order: sent to the child.
    """

    def __init__(self, order: Order) -> None:
        self._channel, theirs = Pipe()
        threads = {"WORKBENCH_NUM_THREADS": str(order.threads), "OMP_NUM_THREADS": str(order.torch_threads)}
        with theirs:
            self._process = KeptProcess(
                [sys.executable, "-c", _CHILD, str(theirs.fileno()), *sys.path],
                pass_fds=[theirs.fileno()],
                environment=os.environ | threads,
            )
        with suppress(BrokenPipeError, ConnectionResetError):  # the child has died; its exit status says why
            self._channel.send(order)

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    def has_ended(self) -> bool:
        """The outcome is there, or the child has died."""
        return self._channel.poll() or self._process.status is not None

    def outcome(self, seconds: float) -> Outcome:
        """How the point ended, once it has.

        Args:
            seconds: that it took, for the message of a child that died.
        """
        with suppress(EOFError, OSError):  # killed before or while it sent
            if self._channel.poll():
                return self._channel.recv()
        return Outcome(error=f"ChildProcessError: {_cause(self._process.wait(_END_SECONDS))} after {seconds:.1f} s")

    def kill(self) -> None:
        """End the child and all that it has started, at once; nothing if they have ended."""
        self._process.kill()
        self._channel.close()


def _cause(code: int | None) -> str:
    if code is None:
        return "the point's process closed its channel without rows"
    rows = " and without rows" if code >= 0 else ""
    return f"the point's process {how_it_ended(code)}{rows}"
