"""Runs one point in a process of its own, which cannot take this process with it, and which ends with this process."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from typing import Any

from workbench.processes import how_it_ended, kill_session

_CHILD = "import sys; sys.path[:] = sys.argv[2:]; from workbench.experiment.point_child import main; main()"


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
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, str(theirs.fileno()), *sys.path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | threads,
                start_new_session=True,  # the terminal's Ctrl-C reaches this process alone, which stops the child
            )
        with suppress(BrokenPipeError, ConnectionResetError):  # the child has died; its exit status says why
            self._channel.send(order)

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    def has_ended(self) -> bool:
        """The outcome is there, or the child has died. Its own children may keep the channel open, so both count."""
        return self._channel.poll() or self._process.poll() is not None

    def outcome(self, seconds: float) -> Outcome:
        """How the point ended, once it has.

        Args:
            seconds: that it took, for the message of a child that died.
        """
        with suppress(EOFError, ConnectionResetError):
            if self._channel.poll():
                return self._channel.recv()
        return Outcome(error=f"ChildProcessError: {_cause(self._process.wait())} after {seconds:.1f} s")

    def kill(self) -> None:
        """End the child and the processes of its session, at once; nothing if it has ended."""
        kill_session(self._process)
        self._channel.close()


def _cause(code: int) -> str:
    rows = " and without rows" if code >= 0 else ""
    return f"the point's process {how_it_ended(code)}{rows}"
