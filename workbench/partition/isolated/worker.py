"""The worker process for partitioners: a fork server in plain Python (standard library only), one fork per call.

It imports programs but runs them only in forks, so every call starts from the same state (Mt-KaHyPar is reproducible
for a seed only then), and whatever a call corrupts or leaks ends with its fork. The fork of the next call is made after
each reply, since forking takes longer than METIS on a batch. The worker ends when its channel, the standard input, is
closed, at the latest with the process that started it. Processes that a call starts end with the call.

    python -I -S worker.py KEEPER PARENT <CHANNEL

KEEPER is the file of `workbench.keeper`, PARENT the id of the process that starts the worker.
"""

import contextlib
import importlib.util
import json
import math
import mmap
import os
import select
import signal
import socket
import sys
import time
import traceback
from types import ModuleType
from typing import Any, NamedTuple

_REQUEST_BYTES = 8  # of a request: the offset of the header in the file that is sent along
_TAIL_BYTES = 4096  # of a program's output, kept for the error message
_END_SECONDS = 0.0001  # between the end of a program's output and its own
_IDLE_POLL_SECONDS = 0.5
_POLL_SECONDS = 0.05  # for what no file tells: the parent has gone, or a program left a process with its output open


keeper: ModuleType
"""`workbench.keeper`, which a worker without the library imports by its file."""


class Fork(NamedTuple):
    """A forked process that waits for one call of a program.

    Args:
        program: file of the program.
        pid: its process id.
        calls: the socket on which it receives the call.
        output: file descriptor of its output.
    """

    program: str
    pid: int
    calls: socket.socket
    output: int

    def start(self, file: int, offset: bytes) -> bool:
        """Send the call; return False if the process has died, killed for memory, say."""
        try:
            socket.send_fds(self.calls, [offset], [file])
        except OSError:
            self.close()
            return False
        return True

    def close(self) -> tuple[int, Any]:
        """Wait for its end; return its status and resource usage."""
        self.calls.close()
        os.close(self.output)
        return os.wait4(self.pid, 0)[1:]


def serve(channel: socket.socket, parent: int) -> None:
    """Reply to requests until the channel is closed or the parent has gone.

    The channel receives a file descriptor and the offset of the header in that file, and sends one line of JSON back.
    """
    programs: dict[str, ModuleType] = {}
    spare: Fork | None = None
    keeper.adopt_orphans()
    while True:
        while not select.select([channel], [], [], _IDLE_POLL_SECONDS)[0]:
            if os.getppid() != parent:
                return
        offset, files, *_ = socket.recv_fds(channel, _REQUEST_BYTES, 1)
        if not files:
            return
        header = _read_header(files[0], offset)
        error = _load(programs, header)
        if error is None:
            reply = _call(_started(spare, programs, header["program"], channel, files[0], offset), header, channel)
            spare = None
        os.close(files[0])
        channel.sendall(json.dumps(error or reply).encode() + b"\n")
        if spare is None and error is None:
            spare = _fork(programs, header["program"], channel)


def _read_header(file: int, offset: bytes) -> dict:
    with mmap.mmap(file, 0) as memory:
        return json.loads(memory[int.from_bytes(offset, "little") :])


def _load(programs: dict[str, ModuleType], header: dict) -> dict | None:
    """Import the program of a call unless it is known; return the reply if that fails."""
    path = header["program"]
    try:
        programs[path] = programs.get(path) or _import(path, header["path"])
    except Exception as error:
        missing = isinstance(error, ImportError)
        return {"missing": missing, "overran": False, "status": 1 << 8, "tail": traceback.format_exc(), "seconds": 0.0}
    return None


def _started(
    spare: Fork | None, programs: dict[str, ModuleType], program: str, channel: socket.socket, file: int, offset: bytes
) -> Fork:
    """Start the call in the spare process if that is one of the program, else in a new one."""
    if spare is not None and spare.program != program:
        os.kill(spare.pid, signal.SIGKILL)
        spare.close()
        spare = None
    if spare is None or not spare.start(file, offset):
        spare = _fork(programs, program, channel)
        spare.start(file, offset)
    return spare


def _fork(programs: dict[str, ModuleType], program: str, channel: socket.socket) -> Fork:
    reader, writer = os.pipe()
    ours, theirs = socket.socketpair()
    worker = os.getpid()
    pid = os.fork()
    if not pid:
        channel.close()
        ours.close()
        _run(programs[program], theirs, writer, worker)
    os.close(writer)
    theirs.close()
    return Fork(program, pid, ours, reader)


def _call(fork: Fork, header: dict, channel: socket.socket) -> dict:
    begin = time.perf_counter()
    overran, tail = _watch(fork.pid, fork.output, channel, header["time_limit_seconds"])
    status, usage = fork.close()
    keeper.end_children()  # what the program has started
    ending = {"missing": False, "overran": overran, "status": status, "tail": tail}
    return {**ending, "seconds": time.perf_counter() - begin, "max_rss": usage.ru_maxrss}


def _import(path: str, module_path: list[str]) -> ModuleType:
    """Import the program's module, and thereby its library, from the module path of the calling process."""
    sys.path[:] = module_path
    spec = importlib.util.spec_from_file_location("program", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(program: ModuleType, calls: socket.socket, writer: int, worker: int) -> None:
    """Wait for the call in the forked process, run the program, then exit."""
    try:
        _attach(writer, worker)
        offset, files, *_ = socket.recv_fds(calls, _REQUEST_BYTES, 1)
        if not files:
            os._exit(0)  # the worker has ended
        memory, header = mmap.mmap(files[0], 0), _read_header(files[0], offset)
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
    keeper.end_with(worker)
    if sys.platform == "linux":
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")


def _watch(pid: int, reader: int, channel: socket.socket, time_limit_seconds: float | None) -> tuple[bool, str]:
    """Read the program's output to its end; kill the program if it overruns its limit or the channel is closed."""
    tail, overran, parent, files = b"", False, os.getppid(), [reader, channel]
    end = math.inf if time_limit_seconds is None else time.monotonic() + time_limit_seconds
    while True:
        # A program usually closes its output when it ends; one that leaves a process behind does not.
        pause = _POLL_SECONDS if reader in files else _END_SECONDS
        ready = select.select(files, [], [], min(max(0.0, end - time.monotonic()), pause))[0]
        if channel in ready or os.getppid() != parent:  # no request arrives before the reply to the previous one
            os.kill(pid, signal.SIGKILL)
            keeper.end_children()
            os._exit(0)
        if reader in ready and (output := os.read(reader, 1 << 16)):
            tail = (tail + output)[-_TAIL_BYTES:]
        else:
            files = [channel] if reader in ready else files
            if keeper.has_ended(pid) or (sys.platform == "darwin" and reader not in files):
                return overran, tail.decode(errors="replace")
        if time.monotonic() >= end:
            overran, end = True, math.inf
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _channel = socket.socket(fileno=0)
    keeper = _import(sys.argv[1], sys.path)
    serve(_channel, int(sys.argv[2]))
    keeper.end_children()
