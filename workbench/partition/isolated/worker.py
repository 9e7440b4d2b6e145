"""The worker process for partitioners: a fork server in plain Python (standard library only), one fork per call.

It imports programs but runs them only in forks, so every call starts from the same state (Mt-KaHyPar is reproducible
for a seed only then), and whatever a call corrupts or leaks ends with its fork. The worker ends when its channel, the
standard input, is closed, at the latest with the process that started it.
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
_REQUEST_BYTES = 8  # of a request: the offset of the header in the file that is sent along
_TAIL_BYTES = 4096  # of a program's output, kept for the error message


def serve(channel: socket.socket) -> None:
    """Reply to requests until the channel is closed.

    Args:
        channel: receives a file descriptor and the offset of the header in that file; sends one line of JSON back.
    """
    programs: dict[str, ModuleType] = {}
    while True:
        offset, files, *_ = socket.recv_fds(channel, _REQUEST_BYTES, 1)
        if not files:
            return
        with mmap.mmap(files[0], 0) as memory:
            header = json.loads(memory[int.from_bytes(offset, "little") :])
            reply = _reply(header, memory, channel, programs)
        os.close(files[0])
        channel.sendall(json.dumps(reply).encode() + b"\n")


def _reply(header: dict, memory: mmap.mmap, channel: socket.socket, programs: dict[str, ModuleType]) -> dict:
    try:
        program = programs.get(header["program"]) or _load(header["program"], header["path"])
    except Exception as error:
        missing = isinstance(error, ImportError)
        return {"missing": missing, "overran": False, "status": 1 << 8, "tail": traceback.format_exc(), "seconds": 0.0}
    programs[header["program"]] = program
    begin = time.perf_counter()
    reader, writer = os.pipe()
    worker = os.getpid()
    pid = os.fork()
    if not pid:
        _run(program, header, memory, writer, worker)
    os.close(writer)
    overran, tail = _watch(pid, reader, channel, header["time_limit_seconds"])
    os.close(reader)
    _, status, usage = os.wait4(pid, 0)
    ending = {"missing": False, "overran": overran, "status": status, "tail": tail}
    return {**ending, "seconds": time.perf_counter() - begin, "max_rss": usage.ru_maxrss}


def _load(path: str, module_path: list[str]) -> ModuleType:
    """Import the program's module, and thereby its library, from the module path of the calling process."""
    sys.path[:] = module_path
    spec = importlib.util.spec_from_file_location("program", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(program: ModuleType, header: dict, memory: mmap.mmap, writer: int, worker: int) -> None:
    """Run the program in the forked process, then exit."""
    try:
        _attach(writer, worker)
        arrays = {name: memoryview(memory)[lo:hi].cast(kind) for name, (lo, hi, kind) in header["arrays"].items()}
        program.run(arrays, **header["options"])
        os._exit(0)  # without waiting for the library's threads and destructors
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def _attach(writer: int, worker: int) -> None:
    """Send all output to the worker, die with it, and become the OOM killer's first choice."""
    null = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, null), (1, writer), (2, writer)):
        os.dup2(source, target)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
    if os.getppid() != worker:
        os._exit(1)


def _watch(pid: int, reader: int, channel: socket.socket, time_limit_seconds: float | None) -> tuple[bool, str]:
    """Read the program's output to its end; kill the program if it overruns its limit or the channel is closed."""
    tail, overran = b"", False
    end = None if time_limit_seconds is None else time.monotonic() + time_limit_seconds
    while True:
        left = None if end is None or overran else max(0.0, end - time.monotonic())
        ready = select.select([reader, channel], [], [], left)[0]
        if channel in ready:  # no request arrives before the reply to the previous one: the channel is closed
            os.kill(pid, signal.SIGKILL)
            os._exit(0)
        if not ready:
            overran = True
            os.kill(pid, signal.SIGKILL)
        elif not (output := os.read(reader, 1 << 16)):
            return overran, tail.decode(errors="replace")
        else:
            tail = (tail + output)[-_TAIL_BYTES:]


if __name__ == "__main__":
    serve(socket.socket(fileno=0))
