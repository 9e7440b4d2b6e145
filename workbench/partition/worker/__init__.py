"""Partitioners in a process of their own: what fails, crashes or overruns its time there leaves this process as it is.

`run_program` sends arrays to a server process (`process.py`, `server.py`), which forks for every call.
"""

import importlib.util
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from workbench.core.errors import CapacityError, PartitionError
from workbench.core.host_memory import available_bytes
from workbench.core.units import format_bytes
from workbench.partition.worker.process import borrowed_server

_FORMATS = {torch.int64: "q", torch.int32: "i"}
_ANSWER_SECONDS = 20.0
"""Beyond a call's limit, for what the limit does not cover: starting, importing METIS, answering."""
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True)
class Program:
    """A script with a function `run(arrays, **options)` that writes its result into one of the arrays.

    Args:
        name: for messages.
        module: what it imports.
        script: the file; it may import nothing of the workbench.
    """

    name: str
    module: str
    script: Path


METIS = Program("METIS", "pymetis", Path(__file__).with_name("metis_program.py"))
MT_KAHYPAR = Program("Mt-KaHyPar", "mtkahypar", Path(__file__).with_name("mtkahypar_program.py"))


@dataclass(frozen=True)
class ProgramCall:
    """What a call of a program took.

    Args:
        program: its name.
        seconds: from its start to its end.
        peak_bytes: most memory that its process held, the arrays that it read among it; None where the system does not
            say.
    """

    program: str
    seconds: float
    peak_bytes: int | None


_calls: ContextVar[list[ProgramCall] | None] = ContextVar("calls", default=None)


@contextmanager
def program_calls() -> Iterator[list[ProgramCall]]:
    """Collect what the calls of programs take that this thread makes in the `with` block."""
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
    """Run a partitioner in another process.

    Any process and thread may call it, forked ones too; an interrupt ends the program at once. The arrays are copied
    once, into a file without a name that lies in memory, or on the disk where memory is short. The program's output
    is seen nowhere, but for its last line where it fails.

    Args:
        program: what to run.
        arrays: int64 or int32 vectors by name; None is left out.
        options: keywords of the program's `run`, as JSON has them.
        num_results: length of its array "part", which is the result.
        time_limit_seconds: end it after that; None: never.

    Returns:
        int64 [num_results].

    Raises:
        ImportError: what the program imports is not installed.
        PartitionError: it failed, crashed or overran its time.
    """
    if importlib.util.find_spec(program.module) is None:
        raise ImportError(_missing(program))
    present = {name: array.contiguous() for name, array in arrays.items() if array is not None}
    with _anonymous_file(sum(array.nbytes for array in present.values()) + 8 * num_results) as file:
        present["part"] = torch.zeros(num_results, dtype=torch.int64)
        header = {"program": str(program.script), "path": [path for path in sys.path if os.path.isabs(path)]}
        header |= {"options": dict(options), "time_limit_seconds": time_limit_seconds}
        places = _write(file, present, header)
        reply = _ask(program, file.fileno(), places["header"], time_limit_seconds)
        _check(program, reply, time_limit_seconds)
        file.seek(places["part"])
        file.readinto(present["part"].numpy())  # pyright: ignore[reportAttributeAccessIssue]
    return present["part"]


@contextmanager
def _anonymous_file(nbytes: int) -> Iterator[BinaryIO]:
    """A file that has no name, so that nothing is left of it once nobody has it open, however that comes about."""
    in_memory = hasattr(os, "memfd_create") and 2 * nbytes < available_bytes()
    with open(os.memfd_create("partition"), "w+b") if in_memory else tempfile.TemporaryFile() as file:
        yield file


def _write(file: BinaryIO, arrays: Mapping[str, Tensor], header: Mapping[str, Any]) -> dict[str, int]:
    """Write the arrays and then the header; where each of them begins."""
    places, end = {}, 0
    try:
        for name, array in arrays.items():
            file.write(array.numpy().data)
            file.write(bytes(-array.nbytes % 8))  # the next one begins where any kind of number may
            places[name], end = end, file.tell()
        spans = {name: (places[name], places[name] + a.nbytes, _FORMATS[a.dtype]) for name, a in arrays.items()}
        file.write(json.dumps({**header, "arrays": spans}).encode())
        file.flush()
    except OSError as error:
        raise CapacityError(
            f"the arrays of a partition, {format_bytes(sum(a.nbytes for a in arrays.values()))}, could not be stored "
            f"({error.strerror}): free memory or space in {tempfile.gettempdir()}, or set TMPDIR to another folder"
        ) from None
    return {**places, "header": end}


def _ask(program: Program, file: int, header_place: int, time_limit_seconds: float | None) -> dict[str, Any]:
    limit = None if time_limit_seconds is None else time_limit_seconds + _ANSWER_SECONDS
    with borrowed_server() as server:
        try:
            line = server.ask(file, header_place, limit)
        except TimeoutError:
            raise PartitionError(
                f"the process that was to run {program.name} gave no answer within {_ANSWER_SECONDS:g} s of its limit "
                f"of {time_limit_seconds} s and was ended: call again, or allow more time"
            ) from None
        if not line:
            raise PartitionError(
                f"the process that was to run {program.name} ended with status {server.kill()}: call again, and if it "
                f"goes on so, see whether {sys.executable} starts as a Python"
            )
    return json.loads(line)


def _check(program: Program, reply: Mapping[str, Any], time_limit_seconds: float | None) -> None:
    """Note what the call took, or say what became of it."""
    if reply["missing"]:
        raise ImportError(f"{_missing(program)} ({_last_line(reply)})")
    if reply["overran"]:
        raise PartitionError(
            f"{program.name} was ended after {reply['seconds']:.1f} s, over its limit of {time_limit_seconds} s: allow "
            "more time, or choose a cheaper method (fast, range, random)"
        )
    if reply["status"]:
        raise PartitionError(f"{program.name} {_ending(reply)}")
    noted = _calls.get()
    if noted is not None:
        noted.append(ProgramCall(program.name, reply["seconds"], reply["max_rss"] * _RSS_UNIT or None))


def _ending(reply: Mapping[str, Any]) -> str:
    """How a program ended that did not end well, and what to do."""
    code, said = os.waitstatus_to_exitcode(reply["status"]), _last_line(reply)
    what = f"failed with exit code {code}" if code >= 0 else f"was ended by {_signal_name(-code)}"
    remedy = "partition with another method, seed or number of parts"
    if -code == signal.SIGKILL or "MemoryError" in said or "bad_alloc" in said:
        remedy = "memory may have run out; partition a smaller batch, or with another method (fast, range, random)"
    return f"{what} after {reply['seconds']:.1f} s{said and f', saying {said!r}'}: {remedy}"


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _last_line(reply: Mapping[str, Any]) -> str:
    return next((line.strip() for line in reversed(reply["tail"].splitlines()) if line.strip()), "")


def _missing(program: Program) -> str:
    return (
        f"this partition needs {program.name}: pip install {program.module}, or choose a method without it "
        "(range, random; cluster with node_parts of your own)"
    )
