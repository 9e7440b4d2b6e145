"""The process that runs partitioners: a plain script of the standard library, one forked process a call.

It never runs foreign code itself, apart from imports, so it stays as it was when it started: every call begins in the
same state (Mt-KaHyPar repeats for a seed only then), and what a call breaks, or still holds, goes with its process. It
ends when its channel, the standard input, is closed: with the process that started it.
"""

import contextlib
import ctypes
import importlib.util
import json
import mmap
import os
import select
import signal
import socket
import sys
import time
import traceback
from types import ModuleType

_PR_SET_PDEATHSIG = 1
_REQUEST = 8  # bytes of a request: where in the file that is sent along the header begins, to its end
_TAIL = 4096  # last characters of a program's output that are kept


def serve(channel: socket.socket) -> None:
    """Answer requests, each a file, until the channel is closed.

    Args:
        channel: carries a file and the place of the header in it, and back a line of JSON.
    """
    programs: dict[str, ModuleType] = {}
    while True:
        place, files, *_ = socket.recv_fds(channel, _REQUEST, 1)
        if not files:
            return
        with mmap.mmap(files[0], 0) as memory:
            header = json.loads(memory[int.from_bytes(place, "little") :])
            reply = _answer(header, memory, channel, programs)
        os.close(files[0])
        channel.sendall(json.dumps(reply).encode() + b"\n")


def _answer(header: dict, memory: mmap.mmap, channel: socket.socket, programs: dict[str, ModuleType]) -> dict:
    try:
        program = programs.get(header["program"]) or _load(header["program"], header["path"])
    except Exception as error:
        missing = isinstance(error, ImportError)
        return {"missing": missing, "overran": False, "status": 1 << 8, "tail": traceback.format_exc(), "seconds": 0.0}
    programs[header["program"]] = program
    begin = time.perf_counter()
    reader, writer = os.pipe()
    server = os.getpid()
    pid = os.fork()
    if not pid:
        _work(program, header, memory, writer, server)
    os.close(writer)
    overran, tail = _watch(pid, reader, channel, header["time_limit_seconds"])
    os.close(reader)
    _, status, usage = os.wait4(pid, 0)
    ending = {"missing": False, "overran": overran, "status": status, "tail": tail}
    return {**ending, "seconds": time.perf_counter() - begin, "max_rss": usage.ru_maxrss}


def _load(path: str, module_path: list[str]) -> ModuleType:
    """The program's module: what it imports is found where the caller's process finds it, and imported once."""
    sys.path[:] = module_path
    spec = importlib.util.spec_from_file_location("program", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _work(program: ModuleType, header: dict, memory: mmap.mmap, writer: int, server: int) -> None:
    """Run the program and end: in the forked process."""
    try:
        _attach(writer, server)
        arrays = {name: memoryview(memory)[lo:hi].cast(kind) for name, (lo, hi, kind) in header["arrays"].items()}
        program.run(arrays, **header["options"])
        os._exit(0)  # a library's own threads and destructors have no say
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def _attach(writer: int, server: int) -> None:
    """Send all output to the server, die with it, and be the first to go where memory runs out."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, writer), (2, writer)):
        os.dup2(source, target)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
    if os.getppid() != server:
        os._exit(1)


def _watch(pid: int, reader: int, channel: socket.socket, time_limit_seconds: float | None) -> tuple[bool, str]:
    """Wait until the program's output ends, or end it: when its time is up, or nobody waits for it any more."""
    tail, overran = b"", False
    end = None if time_limit_seconds is None else time.monotonic() + time_limit_seconds
    while True:
        left = None if end is None or overran else max(0.0, end - time.monotonic())
        ready = select.select([reader, channel], [], [], left)[0]
        if channel in ready:  # no request comes before the last one is answered: the channel is closed
            os.kill(pid, signal.SIGKILL)
            os._exit(0)
        if not ready:
            overran = True
            os.kill(pid, signal.SIGKILL)
        elif not (output := os.read(reader, 1 << 16)):
            return overran, tail.decode(errors="replace")
        else:
            tail = (tail + output)[-_TAIL:]


if __name__ == "__main__":
    serve(socket.socket(fileno=0))
