"""Child processes: they end with their parent, with all that they started, and the cause of their end can be told."""

import atexit
import math
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from workbench.keeper import has_ended

_KEEPER = Path(__file__).with_name("keeper.py")
_KILL_SECONDS = 4.0  # in which a keeper ends what it keeps, which takes some milliseconds
_POLL_SECONDS = 0.05

_kept: "weakref.WeakSet[KeptProcess]" = weakref.WeakSet()


class KeptProcess:
    """A program in a process of its own that takes its descendants with it, whatever ends it.

    They end when the program ends in any way, when it is killed here, and when this process ends in any way. A keeper
    (`workbench.keeper`) between both sees to that. The program leads no session, but belongs to the keeper's: the
    terminal's Ctrl-C does not reach it. A process that was forked from this one leaves it alone.

    Args:
        command: program and arguments.
        pass_fds: file descriptors that the program inherits, beside those of output and error.
        environment: of the program; None: that of this process.
        stdout: file of its output; None: that of this process.
        stderr: file of its errors, or `subprocess.STDOUT`; None: that of this process.
        cwd: folder in which it runs; None: that of this process.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        stdout: IO | None = None,
        stderr: IO | int | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._leash, theirs = socket.socketpair()
        self._leash.settimeout(_KILL_SECONDS)
        self._owner, self._pid = os.getpid(), None
        with theirs:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_KEEPER), str(theirs.fileno()), str(self._owner), *command],
                pass_fds=[theirs.fileno(), *pass_fds],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env=environment,
                start_new_session=True,
            )
        _kept.add(self)

    @property
    def pid(self) -> int:
        """Process id of the program."""
        if self._pid is None and self._owner == os.getpid():
            with suppress(OSError):
                self._pid = int.from_bytes(self._leash.recv(8), "little") or None
        return self._pid or self._keeper.pid  # the keeper has died if it has not told

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while any process is left. 0 in a process forked from this one."""
        if self._owner != os.getpid():
            return 0
        if (status := session_status(self._keeper)) is not None and self._leash.fileno() >= 0:
            _ = self.pid  # known from here on
            self._leash.close()
        return status

    def wait(self, seconds: float = math.inf) -> int | None:
        """The exit status, for which it waits at most so long; None if the program still runs."""
        began, pause = time.monotonic(), 0.001
        while (status := self.status) is None and time.monotonic() - began < seconds:
            time.sleep(pause)
            pause = min(2 * pause, _POLL_SECONDS)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal to the program; nothing if it has ended."""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the program, and the processes of its session, to end (SIGTERM)."""
        if self.status is None:
            self._keeper.terminate()

    def kill(self) -> None:
        """End the program and all that it has started, at once; nothing if they have ended."""
        if self._owner == os.getpid():
            with suppress(OSError):  # closing it is not enough where a forked process has it open too
                self._leash.shutdown(socket.SHUT_RDWR)
            if self.wait(_KILL_SECONDS) is None:  # the keeper was stopped
                kill_session(self._keeper)
        self._leash.close()


def session_status(process: "subprocess.Popen[bytes]") -> int | None:
    """Exit status of a child that leads a session; None while it runs. If it has ended, the others of the session are
    killed before its process id can become that of another process."""
    if process.returncode is None and has_ended(process.pid):
        _kill_group(process.pid)
    return process.poll()


def kill_session(process: "subprocess.Popen[bytes]") -> int:
    """Kill a child that leads a session, and the other processes of that session; return its exit status."""
    if session_status(process) is None:  # else its id may be another process's by now
        _kill_group(process.pid)
    return process.wait()


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS: nobody is left but the leader, which has ended
        os.killpg(leader, signal.SIGKILL)


def how_it_ended(status: int) -> str:
    """How a process ended, as the end of a sentence that begins with its name.

    Args:
        status: `returncode` of `subprocess.Popen`, negative for a signal.
    """
    if status >= 0:
        return f"ended with exit status {status}"
    if status == -signal.SIGKILL:
        return "was killed by SIGKILL, as the system does when memory runs out,"
    return f"crashed with {signal_name(-status)}"


def signal_name(number: int) -> str:
    """Name of a signal; real-time signals have none.

    >>> signal_name(11), signal_name(40)
    ('SIGSEGV', 'signal 40')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _kill_all() -> None:
    """End what is still open when the interpreter ends, so that nothing outlives this process even for a moment."""
    for process in list(_kept):
        process.kill()


atexit.register(_kill_all)
