"""Partitioners in a subprocess: a failure, a crash or a timeout there leaves this process unharmed.

`run_program` sends arrays to a worker process (`worker.py`), which forks for every call. Workers are reused, each lent
to one thread at a time, and end with this process.
"""

import atexit
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from workbench import keeper
from workbench.core.errors import CapacityError, PartitionError, available_bytes
from workbench.core.units import format_bytes
from workbench.error_text import printable, shortened
from workbench.processes import kill_session, session_status

_FORMATS = {torch.int64: "q", torch.int32: "i"}

_REPLY_SECONDS = 20.0
"""Time beyond a call's limit for what the limit does not cover: start the worker, import METIS, reply."""

_LONGEST_SECONDS = 1e9  # of a limit: sockets take little more

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True)
class Program:
    """A script with a function `run(arrays, **options)` that writes its result into one of the arrays.

    Args:
        name: name in messages.
        module: the module that it imports.
        script: its file; it must not import the workbench.
    """

    name: str
    module: str
    script: Path


METIS = Program("METIS", "pymetis", Path(__file__).with_name("metis_program.py"))

MT_KAHYPAR = Program("Mt-KaHyPar", "mtkahypar", Path(__file__).with_name("mtkahypar_program.py"))


@dataclass(frozen=True)
class ProgramCall:
    """Time and memory of one call of a program.

    Args:
        program: its name.
        seconds: wall time from its start to its end.
        peak_bytes: peak resident memory of its process, including the arrays that it read; None if the system does not
            report it.
    """

    program: str
    seconds: float
    peak_bytes: int | None


_calls: ContextVar[list[ProgramCall] | None] = ContextVar("calls", default=None)


@contextmanager
def program_calls() -> Iterator[list[ProgramCall]]:
    """Collect time and memory of the program calls that this thread makes in the `with` block."""
    calls: list[ProgramCall] = []
    token = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(token)


def run_program(
    program: Program,
    arrays: Mapping[str, Tensor | None],
    options: Mapping[str, Any],
    *,
    num_results: int,
    time_limit_seconds: float | None = None,
) -> Tensor:
    """Run a partitioner in a subprocess, and return int64 [num_results], its array "part".

    Any process and thread may call it, forked ones too; an interrupt ends the program at once. The arrays (int64 or
    int32 vectors; None is omitted) are copied once, into an anonymous file in memory, or on disk if memory is short.
    The options of the program's `run` are JSON values. Its output is discarded, except for its last line if it fails.

    Raises:
        ImportError: the module that the program imports is not installed.
        PartitionError: it failed, crashed or overran its time limit.
        CapacityError: neither memory nor disk has room for the arrays.
    """
    if importlib.util.find_spec(program.module) is None:
        raise ImportError(_missing(program))
    present = {name: array.contiguous() for name, array in arrays.items() if array is not None}
    with _anonymous_file(sum(array.nbytes for array in present.values()) + 8 * num_results) as file:
        present["part"] = torch.zeros(num_results, dtype=torch.int64)
        header = {"program": str(program.script), "path": [path for path in sys.path if os.path.isabs(path)]}
        header |= {"options": dict(options), "time_limit_seconds": time_limit_seconds}
        offsets = _write(file, present, header)
        reply = _request(program, file.fileno(), offsets["header"], time_limit_seconds)
        _check(program, reply, time_limit_seconds)
        file.seek(offsets["part"])
        file.readinto(present["part"].numpy())  # pyright: ignore[reportAttributeAccessIssue]
    return present["part"]


@contextmanager
def _anonymous_file(nbytes: int) -> Iterator[BinaryIO]:
    """Open a file without a name, which the system deletes when nobody has it open any more, even after a crash."""
    in_memory = hasattr(os, "memfd_create") and 2 * nbytes < available_bytes()
    with open(os.memfd_create("partition"), "w+b") if in_memory else tempfile.TemporaryFile() as file:
        yield file


def _write(file: BinaryIO, arrays: Mapping[str, Tensor], header: Mapping[str, Any]) -> dict[str, int]:
    """Write the arrays, then the header; return the offset of each in the file."""
    offsets, end = {}, 0
    try:
        for name, array in arrays.items():
            file.write(array.numpy().data)
            file.write(bytes(-array.nbytes % 8))  # aligns the next array
            offsets[name], end = end, file.tell()
        spans = {name: (offsets[name], offsets[name] + a.nbytes, _FORMATS[a.dtype]) for name, a in arrays.items()}
        file.write(json.dumps({**header, "arrays": spans}).encode())
        file.flush()
    except OSError as error:
        raise CapacityError(
            f"the arrays of a partition, {format_bytes(sum(a.nbytes for a in arrays.values()))}, could not be stored "
            f"({error.strerror}): free memory or space in {tempfile.gettempdir()}, or set TMPDIR to another folder"
        ) from None
    return {**offsets, "header": end}


def _request(program: Program, file: int, header_offset: int, time_limit_seconds: float | None) -> dict[str, Any]:
    limit = None if time_limit_seconds is None else time_limit_seconds + _REPLY_SECONDS
    with borrowed_worker() as worker:
        try:
            line = worker.request(file, header_offset, limit)
        except TimeoutError:
            raise PartitionError(
                f"the worker process for {program.name} did not reply within {_REPLY_SECONDS:g} s of the limit of "
                f"{time_limit_seconds} s and was ended: call again, or allow more time"
            ) from None
        if not line:
            raise PartitionError(
                f"the worker process for {program.name} ended with status {worker.kill()}: call again, and if the "
                f"error persists, check that {sys.executable} starts as a Python"
            )
    return json.loads(line)


def _check(program: Program, reply: Mapping[str, Any], time_limit_seconds: float | None) -> None:
    """Record the call's time and memory, or raise the error that ended it."""
    if reply["missing"]:
        raise ImportError(f"{_missing(program)} ({_last_line(reply)})")
    if reply["overran"]:
        raise PartitionError(
            f"{program.name} was ended after {reply['seconds']:.1f} s, over its limit of {time_limit_seconds} s: allow "
            "more time, or choose a cheaper method (fast, range, random)"
        )
    if reply["status"]:
        raise PartitionError(f"{program.name} {_failure(reply)}")
    calls = _calls.get()
    if calls is not None:
        calls.append(ProgramCall(program.name, reply["seconds"], reply["max_rss"] * _RSS_UNIT or None))


def _failure(reply: Mapping[str, Any]) -> str:
    """Describe how a program failed, and the remedy."""
    code, said = os.waitstatus_to_exitcode(reply["status"]), _last_line(reply)
    what = f"failed with exit code {code}" if code >= 0 else f"was ended by {_signal_name(-code)}"
    remedy = "partition with another method, seed or number of parts"
    if -code == signal.SIGKILL or "MemoryError" in said or "bad_alloc" in said:
        remedy = "memory may have run out (OOM); partition a smaller batch, or use another method (fast, range, random)"
    return f"{what} after {reply['seconds']:.1f} s{said and f', saying {said!r}'}: {remedy}"


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _last_line(reply: Mapping[str, Any]) -> str:
    line = next((line.strip() for line in reversed(reply["tail"].splitlines()) if line.strip()), "")
    return printable(shortened(line))


def _missing(program: Program) -> str:
    return (
        f"this partition needs {program.name}: pip install {program.module}, or choose a method without it "
        "(range, random, or cluster with node_parts)"
    )


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
        self._channel.settimeout(None if limit_seconds is None else min(limit_seconds, _LONGEST_SECONDS))
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
