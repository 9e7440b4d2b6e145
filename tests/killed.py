"""Kills (SIGKILL) work in a child process before each of its file operations in turn."""

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

_OPERATIONS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.utime")


def killed_at_each_operation(work: Callable[[], object], root: Path) -> Iterator[int]:
    """Run `work` repeatedly, killing it one operation later each time, until it completes.

    Args:
        work: function that succeeds unless killed.
        root: folder; only operations on paths in it count.

    Yields:
        The number of the operation before which the process was killed; prepare the next run before resuming.
    """
    for moment in count(1):
        with warnings.catch_warnings():  # Python warns that threads do not survive the fork
            warnings.filterwarnings("ignore", message=".*use of fork.*", category=DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _run(work, moment, root)
        status = os.waitpid(pid, 0)[1]
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            return
        yield moment


def _run(work: Callable[[], object], moment: int, root: Path) -> None:
    seen = 0

    def die(event: str, args: tuple[object, ...]) -> None:
        nonlocal seen
        if event in _OPERATIONS and str(args[0]).startswith(str(root)):
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(die)
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
