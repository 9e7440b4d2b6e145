"""Child processes: they end with their parent, with all that they started, and the cause of their end can be told."""

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1


def end_with_parent(channel: int, *, even_if_stuck: bool = False) -> None:
    """Kill this process's session when the parent's end of a channel is closed, at the latest when the parent dies.

    Args:
        channel: file descriptor of this process's end of a socket pair; the parent may still send on it.
        even_if_stuck: on Linux, kill this process even if it hangs in machine code that blocks Python's threads. It
            then ends with the parent's *thread* that started it, and its own children are not waited for.
    """
    if even_if_stuck and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_kill_session_after, args=(channel,), daemon=True).start()


def _kill_session_after(channel: int) -> None:
    hangup = select.poll()
    hangup.register(channel, 0)  # hang-ups alone, not messages
    hangup.poll()
    os.killpg(0, signal.SIGKILL)


def kill_session(process: "subprocess.Popen[bytes]") -> None:
    """Kill a child that leads a session, and the other processes of that session; nothing if it has ended."""
    if process.poll() is None:  # else its id may be another process's by now
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def how_it_ended(status: int) -> str:
    """How a process ended, as the end of a sentence that begins with its name.

    Args:
        status: `returncode` of `subprocess.Popen`, negative for a signal.
    """
    if status >= 0:
        return f"ended with exit status {status}"
    name = signal.Signals(-status).name
    if status == -signal.SIGKILL:
        return f"was killed by {name}, as the system does when memory runs out,"
    return f"crashed with {name}"
