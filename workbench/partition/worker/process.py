"""The processes that run partitioners for this one: kept, lent to one thread at a time, gone when this one goes."""

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SCRIPT = Path(__file__).with_name("server.py")
_lock = threading.Lock()
_idle: list["Server"] = []
_started: "weakref.WeakSet[Server]" = weakref.WeakSet()


class Server:
    """A running `server.py`."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_SCRIPT)],  # no site: the server gets this process's paths
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt of the terminal is for this process to pass on
            )
        _started.add(self)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, file: int, header_place: int, limit_seconds: float | None = None) -> bytes:
        """Send a file whose header says what to do.

        Args:
            file: descriptor.
            header_place: where in the file the header begins.
            limit_seconds: how long to wait for the answer; None: without limit.

        Returns:
            The line that comes back, empty if the server died.

        Raises:
            TimeoutError: no answer in time.
        """
        self._channel.settimeout(limit_seconds)
        with suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._channel, [header_place.to_bytes(8, "little")], [file])
            return self._channel.makefile("rb").readline()
        return b""

    def kill(self) -> int:
        """End the server and what it runs, at once; its exit status."""
        if self._process.returncode is None:  # else its id may be another process's by now
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._channel.close()
        return self._process.wait()

    def forget(self) -> None:
        """In a forked process: leave the server to the process that started it."""
        self._channel.close()
        self._process.returncode = 0


@contextmanager
def borrowed_server() -> Iterator[Server]:
    """A server for one call; whatever interrupts the call, such as Ctrl-C, ends the server and what it runs."""
    server = _idle_server() or Server()
    try:
        yield server
    except BaseException:
        server.kill()
        raise
    with _lock:
        _idle.append(server)


def _idle_server() -> Server | None:
    with _lock:
        while _idle:
            server = _idle.pop()
            if server.alive:
                return server
            server.kill()
    return None


def _end_all() -> None:
    with _lock:
        while _idle:
            _idle.pop().kill()


def _forget_all() -> None:
    global _lock
    _lock = threading.Lock()
    _idle.clear()
    for server in list(_started):
        server.forget()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
