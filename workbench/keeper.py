"""The keeper of a child process: starts a program, and leaves nothing of it when it ends or when the parent is gone.

    python -I -S keeper.py LEASH PARENT PROGRAM [ARGUMENT …]

On Linux the keeper adopts whatever its program leaves behind (PR_SET_CHILD_SUBREAPER), so that also the processes of a
program that was killed, and those that moved to sessions of their own, are found and ended. Elsewhere the program's
process group is. `workbench.processes.KeptProcess` starts it; a script of the standard library alone.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_ON_LINUX = sys.platform == "linux"
_PARENT_POLL_SECONDS = 0.5  # the leash does not tell of a parent whose forked children have it open
_PATIENCE_SECONDS = 0.3
"""In which processes may end by themselves: `multiprocessing` removes semaphores and shared memory of killed ones."""


def keep(leash: int, parent: int, run: Callable[[], object]) -> NoReturn:
    """Run a function in a forked child, end its descendants with it, and end as it ended.

    Args:
        leash: file descriptor of a socket whose other end the parent alone has; receives the child's process id.
        parent: process id of the parent; all is ended when it is gone or has closed the leash.
        run: the child's work; usually replaces the child's program.
    """
    adopt_orphans()
    woken, waking = os.pipe()
    for end in (woken, waking):
        os.set_blocking(end, False)
    before = {number: signal.getsignal(number) for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)}
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, _pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # sent to the parent as well, which decides
    keeper, child = os.getpid(), os.fork()
    if not child:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        for file in (leash, woken, waking):
            os.close(file)
        _run(run, keeper)
    with contextlib.suppress(OSError):  # the parent has gone, which shows below
        os.write(leash, child.to_bytes(8, "little"))
    _close_all_but(leash, woken, waking)
    status = None
    while status is None and os.getppid() == parent:
        ready, _, _ = select.select([leash, woken], [], [], _PARENT_POLL_SECONDS)
        if leash in ready:  # the parent sends nothing: it has closed its end
            break
        if woken in ready:
            os.read(woken, 4096)
        status = _reap().get(child)
    if status is None:
        os.kill(child, signal.SIGKILL)
    if not _ON_LINUX:
        with contextlib.suppress(OSError):
            os.killpg(child, signal.SIGKILL)
    statuses = end_children()
    _end_as(statuses[child] if status is None else status)


def adopt_orphans() -> None:
    """On Linux, become the parent of descendants whose parents end."""
    if _ON_LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with(parent: int) -> None:
    """On Linux, be killed when the parent ends, or the thread of it that started this process.

    Args:
        parent: process id, to notice one that has ended before.
    """
    if _ON_LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def end_children(patience_seconds: float = _PATIENCE_SECONDS) -> dict[int, int]:
    """End all children, and with `adopt_orphans` all descendants, and return when there are none.

    Args:
        patience_seconds: time between asking them (SIGTERM) and killing them.

    Returns:
        Wait statuses by process id.
    """
    statuses, asked = dict[int, int](), set[int]()
    until = time.monotonic() + patience_seconds
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return statuses
        if child:
            statuses[child] = status
            continue
        late = time.monotonic() > until
        for child in _children():
            if late:
                os.kill(child, signal.SIGKILL)
            elif child not in asked:
                asked.add(child)
                os.kill(child, signal.SIGTERM)
                os.kill(child, signal.SIGCONT)  # a stopped process notices only then
        time.sleep(0.005)


def has_ended(child: int) -> bool:
    """Whether a child has ended that was not waited for yet, so that its process id is still its own.

    Args:
        child: process id. macOS can't tell: False.
    """
    try:
        return hasattr(os, "waitid") and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _run(run: Callable[[], object], keeper: int) -> NoReturn:
    try:
        if not _ON_LINUX:
            os.setpgid(0, 0)
        end_with(keeper)
        run()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(127)


def _pass_on(number: int, _: object) -> None:
    """Send a signal to the keeper's group, once."""
    signal.signal(number, signal.SIG_IGN)
    os.killpg(0, number)


def _close_all_but(*files: int) -> None:
    """Close what the program was given, so that its other ends see when the program has ended."""
    null = os.open(os.devnull, os.O_RDWR)
    for file in range(3):
        os.dup2(null, file)
    for name in os.listdir("/dev/fd"):
        if (file := int(name)) > 2 and file not in files:
            with contextlib.suppress(OSError):  # that of the folder, closed by now
                os.close(file)


def _reap() -> dict[int, int]:
    """Wait statuses of the children that have ended."""
    statuses: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[ended[0]] = ended[1]
    return statuses


def _children() -> Iterator[int]:
    """Process ids of the children; none where there is no /proc."""
    me = str(os.getpid()).encode()
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                    if file.read().rpartition(b")")[2].split()[1] == me:
                        yield int(name)


def _end_as(status: int) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has written one if it was to
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _execute(command: list[str]) -> None:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]} can't be started: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(127)


if __name__ == "__main__":
    _leash, _parent, *_command = sys.argv[1:]
    keep(int(_leash), int(_parent), lambda: _execute(_command))
