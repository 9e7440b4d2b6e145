"""A pool of worker processes for partitioners: reused, each lent to one thread at a time, ended with this process."""

import atexit
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from workbench import keeper
from workbench.processes import kill_session, session_status

_SCRIPT = Path(__file__).with_name("worker.py")
_END_SECONDS = 1.0
_lock = threading.Lock()
_idle: list["Worker"] = []
_started: "weakref.WeakSet[Worker]" = weakref.WeakSet()


class Worker:
    """A running `worker.py`."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                # No site: every request contains the module path.
                [sys.executable, "-I", "-S", str(_SCRIPT), keeper.__file__, str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # the terminal's interrupt reaches only this process, which kills the worker
            )
        _started.add(self)

    @property
    def alive(self) -> bool:
        return session_status(self._process) is None

    def request(self, file: int, header_offset: int, limit_seconds: float | None = None) -> bytes:
        """Send a file whose header describes the call, and return the reply, one line; empty if the worker died.

        Raises:
            TimeoutError: no reply in time.
        """
        self._channel.settimeout(limit_seconds)
        with suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._channel, [header_offset.to_bytes(8, "little")], [file])
            return self._channel.makefile("rb").readline()
        return b""

    def kill(self) -> int:
        """End the worker and all that its program has started, also if the worker has died; return its exit status."""
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)  # at which it ends
        until = time.monotonic() + _END_SECONDS
        while self.alive and time.monotonic() < until:
            time.sleep(0.002)
        self._channel.close()
        return kill_session(self._process)

    def forget(self) -> None:
        """Detach, in a forked process: the worker belongs to the process that started it."""
        self._channel.close()
        self._process.returncode = 0


@contextmanager
def borrowed_worker() -> Iterator[Worker]:
    """Lend an idle or new worker for one call; any exception, such as Ctrl-C, kills it and the program that it runs."""
    worker = _idle_worker() or Worker()
    try:
        yield worker
    except BaseException:
        worker.kill()
        raise
    with _lock:
        _idle.append(worker)


def _idle_worker() -> Worker | None:
    with _lock:
        while _idle:
            worker = _idle.pop()
            if worker.alive:
                return worker
            worker.kill()
    return None


def _kill_idle() -> None:
    with _lock:
        while _idle:
            _idle.pop().kill()


def _forget_all() -> None:
    global _lock
    _lock = threading.Lock()
    _idle.clear()
    for worker in list(_started):
        worker.forget()


atexit.register(_kill_idle)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
